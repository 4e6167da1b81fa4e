"""ObjectStage, the native stage of batch echoing: failing transforms, and references."""

import contextlib
import itertools
import sys
import types

import pytest

import pyecho
from pyecho import _core
from pyecho.config import Config


def test_where_the_transform_fails_the_consumer_gets_the_error_and_then_the_use():
    calls = itertools.count(1)

    def transform(item, index, use):
        if next(calls) in (1, 4, 5):
            raise ZeroDivisionError
        return item, index, use

    queue = _core.ObjectStage(Config(factor=2), transform=transform)
    for item in "ab":
        queue.fill(queue.reserve(), item)
    queue.close()
    uses, emitted = iter(queue), []
    for _ in range(8):
        try:
            emitted.append(next(uses, "end"))
        except ZeroDivisionError:
            emitted.append("error")
    assert emitted[:4] == ["error", ("a", 0, 0), ("a", 0, 1), "error"]
    assert emitted[4:] == ["error", ("b", 1, 0), ("b", 1, 1), "end"]


@pytest.mark.parametrize("stop_within", [False, True])
def test_stop_lets_go_of_a_use_that_is_due_again(stop_within):
    item = types.SimpleNamespace()
    before = sys.getrefcount(item)

    def transform(item, index, use):
        if stop_within:
            queue.stop()
        raise ZeroDivisionError

    queue = _core.ObjectStage(Config(factor=1), transform=transform)
    queue.fill(queue.reserve(), item)
    uses = iter(queue)
    with contextlib.suppress(ZeroDivisionError):
        next(uses)
    queue.stop()
    assert sys.getrefcount(item) == before
    with pytest.raises(pyecho.Closed):
        next(uses)


def test_references_are_balanced():
    item = types.SimpleNamespace()
    before = sys.getrefcount(item)
    emitted = list(pyecho.EchoLoader([item] * 3, 4, shuffle_buffer=3))
    assert sys.getrefcount(item) == before + 12
    del emitted
    assert sys.getrefcount(item) == before
