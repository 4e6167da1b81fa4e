"""EchoQueue, the native stage of batch echoing."""

import contextlib
import itertools
import sys

import pytest
import reference_model as model

import pyecho
from pyecho import _core


def make(capacity=1, factor=2.0, prefetch=2, transform=None, seed=0, epoch=0):
    return _core.EchoQueue(
        capacity=capacity,
        factor=factor,
        seed=seed,
        epoch=epoch,
        prefetch=prefetch,
        transform=transform,
    )


def test_uses_come_as_the_planner_says():
    queue = make(capacity=4, factor=2.5, prefetch=6, seed=3, epoch=1)
    for number in range(8):
        queue.put(number, None)
    queue.close()
    expected = model.uses(8, factor=2.5, capacity=4, seed=3, epoch=1)
    assert list(queue._iterate(None)) == [use.item for use in expected]


def test_transform_gets_item_source_index_and_use_and_its_result_is_emitted():
    queue = make(transform=lambda item, index, use: (item, index, use))
    queue.put("a", None)
    queue.put("b", None)
    queue.close()
    assert list(queue._iterate(None)) == [("a", 0, 0), ("a", 0, 1), ("b", 1, 0), ("b", 1, 1)]


def fails_at(*calls):
    """A transform that fails at these of its calls."""
    numbers = itertools.count(1)

    def transform(item, index, use):
        if next(numbers) in calls:
            raise ZeroDivisionError
        return item, index, use

    return transform


def test_where_the_transform_fails_the_consumer_gets_the_error_and_then_the_use():
    queue = make(transform=fails_at(1, 4, 5))
    queue.put("a", None)
    queue.put("b", None)
    queue.close()
    uses = queue._iterate(None)
    emitted = []
    for _ in range(8):
        try:
            emitted.append(next(uses, "end"))
        except ZeroDivisionError:
            emitted.append("error")
    assert emitted[:4] == ["error", ("a", 0, 0), ("a", 0, 1), "error"]
    assert emitted[4:] == ["error", ("b", 1, 0), ("b", 1, 1), "end"]


def test_a_use_that_is_due_again_is_guarded_as_well():
    item = [1]
    queue = make(transform=fails_at(2))
    queue.put(*_core.share_item(item))
    queue.put("next", None)
    queue.close()
    uses = queue._iterate(None)
    assert next(uses) == ([1], 0, 0)
    with pytest.raises(ZeroDivisionError):
        next(uses)
    item[0] = 2
    with pytest.raises(pyecho.EchoMutated):
        next(uses)
    assert next(uses) == ("next", 1, 0)


@pytest.mark.parametrize("stop_within", [False, True])
def test_stop_lets_go_of_a_use_that_is_due_again(stop_within):
    item = object()
    before = sys.getrefcount(item)

    def transform(item, index, use):
        if stop_within:
            queue.stop()
        raise ZeroDivisionError

    queue = make(factor=1, transform=transform)
    queue.put(item, None)
    uses = queue._iterate(None)
    with contextlib.suppress(ZeroDivisionError):
        next(uses)
    queue.stop()
    assert sys.getrefcount(item) == before
    with pytest.raises(pyecho.Closed):
        next(uses)


def test_guards_are_compared_before_each_repeat():
    item = [1]
    queue = make(factor=3.0)
    queue.put(*_core.share_item(item))
    queue.close()
    uses = queue._iterate(None)
    assert [next(uses), next(uses)] == [item, item]
    item[0] = 2
    with pytest.raises(pyecho.EchoMutated, match=r"item\[0\] was changed in place.*copy=True"):
        next(uses)


def test_references_are_balanced():
    item = object()
    before = sys.getrefcount(item)
    queue = make(capacity=3, factor=4.0)
    for _ in range(3):
        queue.put(item, None)
    queue.close()
    emitted = list(queue._iterate(None))
    assert sys.getrefcount(item) == before + 12
    del emitted
    assert sys.getrefcount(item) == before


def test_stop_lets_go_of_the_items():
    item = object()
    before = sys.getrefcount(item)
    queue = make()
    queue.put(item, None)
    assert sys.getrefcount(item) == before + 1
    queue.stop()
    assert sys.getrefcount(item) == before


def test_the_owner_is_told_once_at_the_end():
    class Owner:
        told = 0

        def finish(self):
            self.told += 1

    owner, queue = Owner(), make()
    queue.close()
    uses = queue._iterate(owner)
    list(uses)
    list(uses)
    del uses
    assert owner.told == 1


def test_the_owner_is_told_when_the_iterator_is_dropped():
    class Owner:
        told = 0

        def finish(self):
            self.told += 1

    owner, queue = Owner(), make()
    uses = queue._iterate(owner)
    del uses
    assert owner.told == 1
