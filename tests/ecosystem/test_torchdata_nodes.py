"""torchdata.nodes: a Loader goes on by its own state."""

import pytest

nodes = pytest.importorskip("torchdata.nodes")

from ecosystem import check_epochs, check_states

import pyecho


def echoed(threads=2):
    node = nodes.IterableWrapper(range(40))
    node = nodes.ParallelMapper(node, lambda i: {"x": float(i), "y": i}, threads, method="thread")
    return pyecho.EchoLoader(nodes.Loader(nodes.Prefetcher(node, 4)), 2, batch_size=8)


def test_epochs_and_states():
    check_epochs(echoed, range(40))
    check_states(echoed)
