"""share_item and check_guards: how batch echoing watches an item, natively.

What a consumer sees of it, for nests of every kind, is in tests/loaders/test_nests.py.
"""

import collections
import contextlib
import gc
import sys
import weakref

import numpy as np
import pytest

import pyecho
from pyecho import _core

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


def test_children_are_compared_by_identity_whatever_keys_do():
    item, guards = _core.share_item({Key(): [1], "b": [2]})
    _core.check_guards(guards)
    first, _second = item
    child = item.pop(first)
    item[first] = child
    _core.check_guards(guards)  # in another order
    del item[first]
    item[Key()] = child
    Key.target = item
    try:
        with pytest.raises(pyecho.EchoMutated):
            _core.check_guards(guards)
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
def test_what_came_in_or_changed_places_is_named(change, path):
    item, guards = _core.share_item({"a": (1, 2), "b": ["x", torch.zeros(1)]})
    change(item)
    with pytest.raises(pyecho.EchoMutated) as raised:
        _core.check_guards(guards)
    assert str(raised.value).startswith(path + " was changed in place")


def test_guards_are_seen_by_the_garbage_collector():
    class Node(dict):
        pass

    node = Node()
    node["guards"] = _core.share_item([node])[1]
    gone = weakref.ref(node)
    del node
    gc.collect()
    assert gone() is None


def test_references_are_balanced():
    array, tensor, name = np.zeros(3), torch.zeros(2), "a name " * 2
    items = [array, (array, name), [array, tensor], {name: array, "t": (tensor,)}]
    items += [collections.UserDict(x=array, n=name), collections.OrderedDict(x=array)]
    leaves = (array, tensor, name)
    before = [sys.getrefcount(leaf) for leaf in leaves]
    for item in items:
        shared, guards = _core.share_item(item)
        if guards is not None:
            _core.check_guards(guards)
    del shared, guards, item
    assert [sys.getrefcount(leaf) for leaf in leaves] == before


@pytest.mark.parametrize("guards", [None, 3, (), (1, 2), (1, 2, (3,), None), (1, {}, [], None)])
def test_nonsense_is_no_crash(guards):
    with contextlib.suppress(TypeError, AttributeError, pyecho.EchoMutated):
        _core.check_guards(guards)
