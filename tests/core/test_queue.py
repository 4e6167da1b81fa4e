"""Uses of batch echoing: none is lost where making one fails, and references are balanced."""

import itertools
import sys
import types

import pyecho


def test_use_whose_copy_fails_comes_with_the_next_call():
    calls = itertools.count(1)

    class Fragile:
        def __init__(self, name):
            self.name = name

        def __deepcopy__(self, memo):
            if next(calls) in (1, 4, 5):
                raise ZeroDivisionError
            return self.name

    uses = iter(pyecho.EchoLoader(list(map(Fragile, "ab")), 2, copy=True, shuffle_buffer=0))
    emitted = []
    for _ in range(8):
        try:
            emitted.append(next(uses, "end"))
        except ZeroDivisionError:
            emitted.append("error")
    assert emitted == ["error", "a", "a", "error", "error", "b", "b", "end"]


def test_references_are_balanced():
    item = types.SimpleNamespace()
    before = sys.getrefcount(item)
    emitted = list(pyecho.EchoLoader([item] * 3, 4, shuffle_buffer=3))
    assert sys.getrefcount(item) == before + 12
    del emitted
    assert sys.getrefcount(item) == before
