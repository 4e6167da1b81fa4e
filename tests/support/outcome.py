"""Tests that have failed: their tracebacks keep loaders, and so threads, alive."""

import pytest

FAILED = pytest.StashKey()


def has_failed(request):
    """Return True if the test of this fixture request has failed in any of its phases."""
    return request.node.stash.get(FAILED, False)
