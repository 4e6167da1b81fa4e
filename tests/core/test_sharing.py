"""Batch echoing watches an item, natively.

The consumer's side, for nests of every kind, is in tests/loaders/test_nests.py.
"""

import collections
import gc
import sys
import weakref

import numpy as np
import pytest

import pyecho

torch = pytest.importorskip("torch")


class Key:
    """A key that is equal to none, and says so only by changing everything."""

    target = None

    def __hash__(self):
        return 1

    def __eq__(self, other):
        if Key.target is not None:
            Key.target.clear()
        raise ZeroDivisionError


def uses_of(item):
    """Yield one item again and again."""
    return iter(pyecho.EchoLoader([item], 9))


def test_children_are_compared_by_identity_whatever_keys_do():
    uses = uses_of({Key(): [1], "b": [2]})
    item = next(uses)
    assert next(uses) is item
    first, _second = item
    child = item.pop(first)
    item[first] = child
    assert next(uses) is item  # in another order
    del item[first]
    item[Key()] = child
    Key.target = item
    try:
        with pytest.raises(pyecho.EchoMutated):
            next(uses)
    finally:
        Key.target = None


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda item: item.update(c=1), "item"),
        (lambda item: item["b"].append(1), "item['b']"),
        (lambda item: item["b"].insert(0, item["b"].pop()), "item['b'][0]"),
    ],
)
def test_echo_mutated_names_the_place_where_something_came_in_or_moved(change, path):
    uses = uses_of({"a": (1, 2), "b": ["x", torch.zeros(1)]})
    change(next(uses))
    with pytest.raises(pyecho.EchoMutated) as raised:
        next(uses)
    assert str(raised.value).startswith(path + " was changed in place")


def test_guards_are_seen_by_the_garbage_collector():
    class Node(dict):
        pass

    node = Node()
    uses = uses_of([node])
    next(uses)
    node["uses"] = uses
    gone = weakref.ref(node)
    del node, uses
    gc.collect()
    assert gone() is None


def test_references_are_balanced():
    array, tensor, name = np.zeros(3), torch.zeros(2), "a name " * 2
    items = [array, (array, name), [array, tensor], {name: array, "t": (tensor,)}]
    items += [collections.UserDict(x=array, n=name), collections.OrderedDict(x=array)]
    leaves = (array, tensor, name)
    before = [sys.getrefcount(leaf) for leaf in leaves]
    for item in items:
        assert len(list(uses_of(item))) == 9
    del item
    assert [sys.getrefcount(leaf) for leaf in leaves] == before
