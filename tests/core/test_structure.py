"""The compiled nest of leaves: it survives whatever an item does."""

import sys

import numpy as np
import pytest

import pyecho


class Meddling:
    """A key whose comparison changes the dict that it is looked up in."""

    target = None

    def __init__(self, name):
        self.name = name

    def __hash__(self):
        return hash(self.name)

    def __eq__(self, other):
        if Meddling.target is not None:
            list(map(Meddling.target.pop, [key for key in Meddling.target if type(key) is str]))
        return self.name == other.name


def test_item_may_change_while_it_is_read():
    buffer = pyecho.EchoBuffer(
        pyecho.spec_of({"x": {"deep": np.zeros(3)}, Meddling("k"): 1}), batch_size=1, factor=1
    )
    item = {"x": {"deep": np.zeros(3)}, Meddling("k"): 1}
    Meddling.target = item  # looking up the second key drops the first child
    try:
        buffer.put(item)
        with pytest.raises(pyecho.SpecMismatch, match="got dict with keys"):
            buffer.put(item)
    finally:
        Meddling.target = None
    assert next(iter(buffer))["x"]["deep"].shape == (1, 3)


def test_references_are_balanced():
    row, name, dtype = np.arange(3), "a name " * 2, np.dtype([("a", "i4"), ("b", "f8")])
    before = [sys.getrefcount(it) for it in (row, name, dtype)]
    spec = {"x": pyecho.Field(3, int), "n": pyecho.Field((), object), "d": pyecho.Field((), dtype)}
    buffer = pyecho.EchoBuffer(spec, batch_size=2, factor=2)
    example = {"x": row, "n": name, "d": np.zeros((), dtype)}
    for _ in range(2):
        buffer.put(example)
        for wrong in ({"x": row}, example | {"m": name}, example | {"x": name}):
            with pytest.raises(pyecho.SpecMismatch):
                buffer.put(wrong)
    buffer.close()
    assert [batch["n"] for batch in buffer] == [[name] * 2] * 2
    del example, wrong, spec, buffer
    assert [sys.getrefcount(it) for it in (row, name, dtype)] == before
