"""Leaves whose examples differ in size agree with the items themselves."""

import numpy as np
import pytest

import pyecho
from pyecho import EchoBuffer, EchoLoader, Field, ops

MOST = 40
FIELD = Field((None, 3), "int16", max_bytes=MOST * 6)
BLOCK = Field((None, None), "float32", max_bytes=4 * MOST * MOST)


def items_of(count):
    """Return examples of two leaves that differ in size."""
    return [
        {"tokens": np.zeros((n, 3), np.int16), "block": np.zeros((n, 3), np.float32)}
        for n in range(count)
    ]


def test_item_beyond_max_bytes_names_both_sizes():
    items = [{"tokens": np.zeros((MOST + 1, 3), np.int16)}]
    loader = EchoLoader(items, 2, batch_size=2, fields={"tokens": FIELD})
    with pytest.raises(pyecho.SpecMismatch, match=r"item\['tokens'\].*246 bytes.*240"):
        list(loader)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"token": FIELD}, "'token'"),
        ({"tokens": Field((None, 2), "int16", max_bytes=9)}, "tokens"),
        ({"tokens": Field((None, 3), "int32", max_bytes=9)}, "tokens"),
        ({"tokens": (None, 3)}, "fields must be"),
        ([FIELD], "fields must be"),
        (FIELD, "one leaf that has axes"),
    ],
)
def test_fields_that_do_not_fit_are_refused(fields, message):
    with pytest.raises(pyecho.ConfigError, match=message):
        list(EchoLoader(items_of(3), 2, batch_size=2, fields=fields))


def test_field_needs_max_bytes_where_it_varies_and_only_there():
    with pytest.raises(pyecho.ConfigError, match="max_bytes"):
        Field((None, 3), "uint8")
    with pytest.raises(pyecho.ConfigError, match="max_bytes"):
        Field((2, 3), "uint8", max_bytes=6)


def test_items_too_small_for_a_window_are_refused_with_sizes():
    items = [{"x": np.zeros((9, 9), np.uint8)}, {"x": np.zeros((7, 9), np.uint8)}]
    fields = {"x": Field((None, None), "uint8", max_bytes=100)}
    loader = EchoLoader(items, 2, batch_size=2, fields=fields, ops={"x": [ops.RandomCrop((8, 8))]})
    with pytest.raises(pyecho.SpecMismatch, match=r"item\['x'\].*RandomCrop.*8.*7"):
        list(loader)


def test_buffer_reserves_with_the_size_wanted():
    spec = {"tokens": FIELD, "n": Field((), "int64")}
    buffer = EchoBuffer(spec, batch_size=4, factor=2, shuffle_buffer=8)
    for number in range(8):
        with buffer.reserve(shapes={"tokens": (number, 3)}) as views:
            assert views["tokens"].shape == (number, 3)
            views["tokens"][...] = number
            views["n"][...] = number
    for shapes in ({}, {"tokens": (2, 4)}, {"tokens": (-1, 3)}, {"token": (1, 3)}):
        with pytest.raises(pyecho.ConfigError, match=r"item\['tokens'\]"):
            buffer.reserve(shapes=shapes)
    with pytest.raises(pyecho.SpecMismatch, match="max_bytes"):
        buffer.reserve(shapes={"tokens": (2**62, 3)})
    state = buffer.state_dict()
    buffer.close()
    for which in (buffer, EchoBuffer(spec, batch_size=4, factor=2, shuffle_buffer=8)):
        if which is not buffer:
            which.load_state_dict(state)
            which.close()
        rows = 0
        for batch in which:
            for row, number in enumerate(batch["n"].tolist()):
                assert batch["tokens"].row(row).tolist() == [[number] * 3] * number
                rows += 1
        assert rows == 16


def test_max_bytes_counts_what_items_may_have():
    items = items_of(10)
    options = {"batch_size": 2, "fields": {"tokens": FIELD, "block": BLOCK}, "shuffle_buffer": 10}
    with pytest.raises(pyecho.ConfigError, match="max_bytes"):
        list(EchoLoader(items, 2, max_bytes=100_000, **options))
    assert sum(1 for _ in EchoLoader(items, 2, max_bytes=10 << 20, **options)) == 10


@pytest.mark.parametrize("pad", [None, -5])
def test_augment_example_gets_rows_without_padding(pad):
    items = [np.arange(1 + number % 7) for number in range(40)]
    loader = EchoLoader(
        items,
        1,
        batch_size=8,
        shuffle_buffer=0,
        fields=Field((None,), "int64", max_bytes=800, pad=pad),
        augment_example=lambda row, rng: np.resize(row, 4),
    )
    rows = np.concatenate(list(loader))
    assert rows.tolist() == [np.resize(item, 4).tolist() for item in items]


@pytest.mark.filterwarnings("ignore:the consumer keeps batches")
@pytest.mark.parametrize("kept", ["batches", "values"])
@pytest.mark.parametrize("threads", [0, 1])
def test_max_bytes_bounds_ragged_batches_that_are_kept(kept, threads):
    most, bound = 1 << 14, 4 << 20
    field = Field((None,), "uint8", max_bytes=most)
    items = [{"x": np.full(most, number % 256, np.uint8)} for number in range(2000)]
    loader = EchoLoader(
        items, 4, batch_size=8, fields={"x": field}, max_bytes=bound, threads=threads
    )
    there = []
    with pytest.raises(pyecho.BufferExhausted):
        for batch in loader:
            there.append(batch if kept == "batches" else batch["x"].values)
            del batch
    values = [each["x"].values if kept == "batches" else each for each in there]
    assert 8 * most < sum(each.nbytes for each in values) <= bound
