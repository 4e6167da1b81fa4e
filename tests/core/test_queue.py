"""EchoQueue, the native stage of batch echoing."""

import sys
import types

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


def test_an_exception_of_transform_reaches_the_consumer():
    queue = make(transform=lambda item, index, use: 1 / use)
    queue.put("a", None)
    queue.close()
    uses = queue._iterate(None)
    with pytest.raises(ZeroDivisionError):
        next(uses)
    assert next(uses) == 1


def test_guards_are_compared_before_each_repeat():
    holder = types.SimpleNamespace(version=1)
    queue = make(factor=3.0)
    queue.put("item", ((holder, "version", 1, "the leaf"),))
    queue.close()
    uses = queue._iterate(None)
    assert [next(uses), next(uses)] == ["item", "item"]
    holder.version = 2
    with pytest.raises(pyecho.EchoMutated, match=r"the leaf was changed in place.*copy=True"):
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
