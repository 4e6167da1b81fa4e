"""Items unlike the first: SpecMismatch says where, what was expected, what came; nothing lost."""

from collections import namedtuple

import numpy as np
import pytest
import torch
from drivers import drivers, flat, loader_of

import pyecho
import pyecho.torch

Pair = namedtuple("Pair", ["left", "right"])
IMAGE = np.zeros((2, 3), np.float32)
GOOD = {"image": IMAGE, "label": 1, "extra": [np.zeros(2), "name"]}


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (IMAGE, np.zeros((2, 4), np.float32), r"float32 array of shape \(2, 3\).*\(2, 4\).*crop"),
        (IMAGE, [[0, 0, 0], [0, 0, 0]], "float32 array .*, got list"),
        (np.zeros(2, ">f4"), np.zeros(2, "<f4"), ">f4 array.*got float32 array"),
        (np.array(["abc"]), np.array(["abcde"]), "<U3 array.*got <U5"),
        (1, 2.5, r"int64 array of shape \(\), got float"),
        (True, 2, "bool .* got int"),
        ((1, 2), [1, 2], "a tuple of 2, got list"),
        (
            {"a": 1, "b": 2},
            {"a": 1},
            r"a dict with keys \('a', 'b'\), got dict with .*unify them",
        ),
        ({"a": 1}, {"a": 1, "b": 2}, r"a dict with keys \('a',\), got dict with keys .*'b'"),
    ],
)
def test_spec_mismatch_tells_what_was_expected_and_what_came(first, second, message):
    with pytest.raises(pyecho.SpecMismatch, match=rf"^item: expected {message}"):
        list(pyecho.EchoLoader([first, second], 1, batch_size=1))


@pytest.mark.parametrize("odd", [1, 7])
def test_spec_mismatch_names_the_item(odd):
    items = [np.zeros(3 if number == odd else 2) for number in range(9)]
    for source in (items, iter(items)):
        with pytest.raises(pyecho.SpecMismatch, match=rf"\(item {odd} since the epoch began"):
            for batch in pyecho.EchoLoader(source, 2, batch_size=2):
                del batch


def test_number_that_does_not_fit_is_told():
    with pytest.raises(pyecho.SpecMismatch, match=r"^item: .*int64.*does not fit"):
        list(pyecho.EchoLoader([1, 2**63], 1, batch_size=1))


@pytest.mark.parametrize(
    ("item", "path"),
    [
        (GOOD | {"label": "cat"}, "item['label']"),
        (GOOD | {"extra": {}}, "item['extra']"),
        (GOOD | {"extra": [np.zeros(3), "name"]}, "item['extra'][0]"),
        (GOOD | {"label": Pair(1, 2)}, "item['label']"),
        ({"image": IMAGE, "label": 1}, "item"),
    ],
)
@drivers
def test_leaf_is_named_after_every_use_of_what_came_before(driver, item, path):
    loader = loader_of(driver, [*[GOOD] * 4, item, GOOD], 2, batch_size=3)
    batches, rows = iter(loader), 0
    with pytest.raises(pyecho.SpecMismatch) as raised:
        for batch in batches:
            rows += len(batch["label"])
    assert rows == 8
    assert str(raised.value).startswith(f"{path}: expected ")
    assert list(batches) == [], "after the error the iteration is over"


@pytest.mark.parametrize("shuffle_buffer", [0, 3, 100])
@pytest.mark.parametrize("drop_last", [False, True])
def test_batch_before_an_error_may_be_short_or_left_out(shuffle_buffer, drop_last):
    loader = pyecho.EchoLoader(
        [*range(10), "x"], 3, batch_size=4, shuffle_buffer=shuffle_buffer, drop_last=drop_last
    )
    emitted = []
    with pytest.raises(pyecho.SpecMismatch):
        for batch in loader:
            emitted += flat([batch])
    assert len(emitted) == (28 if drop_last else 30)


@pytest.mark.parametrize("first", [None, "text"])
def test_array_where_the_first_item_has_none_is_an_error(first):
    objects = [first, "more", 3, np.array(["o"], object), b"", None]
    [batch] = pyecho.EchoLoader(
        [{"x": 1, "mask": it} for it in objects], 1, batch_size=6, shuffle_buffer=0
    )
    assert batch["mask"] == objects
    for array in (np.zeros(2), torch.zeros(2)):
        source = [{"x": 1, "mask": first}, {"x": 1, "mask": array}]
        with pytest.raises(
            pyecho.SpecMismatch,
            match=r"item\['mask'\]: the first item has (None|.* type str) here.*zeros, and a flag",
        ):
            list(pyecho.EchoLoader(source, 1, batch_size=2))


def test_field_for_objects_takes_arrays_too():
    buffer = pyecho.EchoBuffer(pyecho.Field((), object), batch_size=2, factor=1)
    given = [np.zeros(2), np.zeros(3)]
    for array in given:
        buffer.put(array)
    buffer.close()
    [batch] = buffer
    assert all(out is array for out, array in zip(batch, given, strict=True))


@pytest.mark.parametrize("position", [0, 1])
@pytest.mark.parametrize("arguments", [{}, {"unbatch": True}])
def test_masked_arrays_are_refused_wherever_they_come(position, arguments):
    masked = np.ma.masked_array(np.arange(4.0), [0, 1, 0, 1])
    source = [{"x": np.arange(4.0)}, {"x": np.arange(4.0)}]
    source[position] = {"x": masked}
    with pytest.raises(pyecho.ConfigError, match=r"lose their mask in a batch; use \.filled"):
        list(pyecho.EchoLoader(source, 1, batch_size=2, **arguments))


def test_torch_loader_names_torch_dtypes():
    first, second = torch.zeros(2, dtype=torch.bfloat16), torch.zeros(2, dtype=torch.float16)
    with pytest.raises(pyecho.SpecMismatch, match=r"bfloat16.*got float16"):
        list(pyecho.torch.EchoLoader([first, second], 1, batch_size=2))
