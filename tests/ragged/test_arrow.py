"""Arrow lists of varying length: arrays by reference, or leaves whose examples differ in size."""

import numpy as np
import pyarrow as pa
import pytest

import pyecho
from pyecho import EchoLoader, Field

LISTS = [[], [1, 2, 3], [4], [5, 6, 7, 8, 9, 10], [11]] * 9


def table(type_, lists=LISTS):
    chunks = [pa.array(lists[:20], type_), pa.array(lists[20:], type_)]
    column = pa.chunked_array(chunks).slice(3) if type_ is not None else pa.chunked_array(chunks)
    return pa.table({"tokens": column, "n": range(len(lists))[-len(column) :]})


@pytest.mark.parametrize("type_", [pa.list_(pa.int16()), pa.large_list(pa.int16())])
def test_field_makes_ragged_leaves(type_):
    field = {"tokens": Field((None,), "int16", max_bytes=100)}
    loader = EchoLoader(table(type_), 2, batch_size=4, fields=field)
    uses = np.zeros(len(LISTS), int)
    for batch in loader:
        for row, number in enumerate(batch["n"].tolist()):
            assert batch["tokens"].row(row).tolist() == LISTS[number]
            uses[number] += 1
    assert (uses[3:] == 2).all()


def test_lists_without_a_field_arrive_as_a_list_of_arrays():
    for batch in EchoLoader(table(pa.list_(pa.float32())), 1, batch_size=4):
        for array, number in zip(batch["tokens"], batch["n"], strict=True):
            assert (array.dtype, array.tolist()) == (np.float32, LISTS[number])


def test_record_batches_have_them_as_columns():
    for batch in EchoLoader(table(pa.list_(pa.float32())), 1):
        for array, number in zip(batch["tokens"], batch["n"], strict=True):
            assert array.tolist() == LISTS[number]


def test_nulls_are_none_between_lists_and_refused_inside_of_them():
    source = pa.table({"tokens": pa.array([[1], None, [2, 3]])})
    [batch] = EchoLoader(source, 1, batch_size=3, shuffle_buffer=0)
    assert batch["tokens"][1] is None
    field = {"tokens": Field((None,), "int64", max_bytes=100)}
    with pytest.raises(pyecho.SpecMismatch, match="tokens"):
        list(EchoLoader(source, 1, batch_size=3, fields=field))
    with pytest.raises(pyecho.ConfigError, match="'tokens' has a null in a list"):
        list(EchoLoader(pa.table({"tokens": pa.array([[1, None]])}), 1, batch_size=1))


def test_lists_longer_than_max_bytes_name_both_sizes():
    field = {"tokens": Field((None,), "int16", max_bytes=10)}
    with pytest.raises(pyecho.SpecMismatch, match=r"12 bytes.*10"):
        list(EchoLoader(table(pa.list_(pa.int16())), 1, batch_size=3, fields=field))
