"""Makers of Arrow streams, record batches, damaged data, and a machine without pyarrow."""

import gc
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.dataset as datasets
import pyarrow.parquet as parquet
import pytest
import torch
from drivers import DRIVERS, drivers, repeated

import pyecho

ROWS = 40
TABLE = pa.table({"x": range(ROWS), "name": [f"n{x}" for x in range(ROWS)]})
BATCHES = TABLE.to_batches(max_chunksize=7)


class Made:
    """Has one method, which makes a stream."""

    def __init__(self, method):
        self._method = method

    def _make(self):
        return TABLE.to_reader() if self._method != "to_batches" else BATCHES

    to_reader = scanner = to_batches = None


MADE = {name: type(name, (Made,), {name: Made._make}) for name in ("to_reader", "scanner")}
MADE["to_batches"] = type("to_batches", (Made,), {"to_batches": Made._make})


def file(folder):
    parquet.write_table(TABLE, folder / "rows.parquet", row_group_size=10)
    return folder / "rows.parquet"


STREAMS = {
    "dataset": lambda folder: datasets.dataset(file(folder)),
    "scanner": lambda folder: datasets.dataset(file(folder)).scanner(batch_size=6),
    "Parquet file": lambda folder: parquet.ParquetFile(file(folder)),
    **{name: lambda folder, name=name: MADE[name](name) for name in MADE},
}
streams = pytest.mark.parametrize("kind", STREAMS)


def numbers(batches):
    found = []
    for batch in batches:
        rows = batch["x"].tolist()
        assert list(batch["name"]) == [f"n{x}" for x in rows]
        found += rows
    return found


@streams
def test_streams_are_read_anew_and_have_a_length_where_no_query_tells_it(kind, tmp_path):
    loader = pyecho.EchoLoader(STREAMS[kind](tmp_path), 2, batch_size=8)
    for _ in range(2):
        assert sorted(numbers(loader)) == repeated(range(ROWS))
    if kind == "Parquet file":
        assert len(loader) == 2 * ROWS // 8
    else:
        with pytest.raises(TypeError, match="does not tell how many items"):
            len(loader)


def test_scanner_that_can_be_read_once_is_no_empty_second_epoch():
    loader = pyecho.EchoLoader(datasets.Scanner.from_batches(TABLE.to_reader()), 1, batch_size=8)
    assert sorted(numbers(loader)) == [*range(ROWS)]
    with pytest.raises(pa.ArrowInvalid, match="already scanned"):
        list(loader)


def test_iterables_are_iterated_although_they_have_such_a_method():
    class Rows(list):
        def to_batches(self):
            raise AssertionError

    [batch] = pyecho.EchoLoader(Rows([1, 2, 3]), 1, batch_size=3, shuffle_buffer=0)
    assert batch.tolist() == [1, 2, 3]


# ---------------------------------------------------------------- record batches


class Iterated:
    def __iter__(self):
        return iter(BATCHES)


class ByIndex(torch.utils.data.Dataset):
    def __len__(self):
        return len(BATCHES)

    def __getitem__(self, index):
        return BATCHES[index]


RECORD_BATCHES = {
    "list": lambda: BATCHES,
    "tables": lambda: [TABLE[:9], pa.concat_tables([TABLE[20:], TABLE[9:20]])],
    "iterable": Iterated,
    "dataset": ByIndex,
    "loader": lambda: torch.utils.data.DataLoader(ByIndex(), batch_size=None, collate_fn=_same),
}


def _same(item):
    return item


@drivers
@pytest.mark.parametrize("kind", RECORD_BATCHES)
def test_record_batches_are_split(kind, driver):
    options = {"batch_size": 8, "unbatch": True, **DRIVERS[driver]}
    loader = pyecho.EchoLoader(RECORD_BATCHES[kind](), 2, **options)
    for _ in range(2):
        assert sorted(numbers(loader)) == repeated(range(ROWS))


@pytest.mark.parametrize("workers", [0, 2])
def test_record_batches_are_split_in_another_order(workers):
    options = {"batch_size": 8, "unbatch": True, "shuffle": True, "num_workers": workers}
    loader = pyecho.EchoLoader(ByIndex(), 2, **options, workers="thread")
    assert sorted(numbers(loader)) == repeated(range(ROWS))


# ---------------------------------------------------------------- what producers do


def reader_of(rows_before_the_end, error=None, ended=None):
    """A reader of two rows at a time, which says when it is let go."""

    def batches():
        try:
            for x in range(0, rows_before_the_end, 2):
                yield pa.record_batch({"x": [x, x + 1]})
            if error is not None:
                raise error
        finally:
            if ended is not None:
                ended.append(True)

    return pa.RecordBatchReader.from_batches(pa.schema({"x": pa.int64()}), batches())


@pytest.mark.parametrize("options", [{"threads": 0}, {"threads": 1}])
def test_error_of_a_producer_arrives_after_what_came_before(options):
    source = reader_of(6, OSError(5, "the line is down"))
    batches = iter(pyecho.EchoLoader(source, 2, batch_size=4, shuffle_buffer=0, **options))
    assert [x for _ in range(3) for x in next(batches)["x"].tolist()] == repeated(range(6))
    with pytest.raises(OSError, match="the line is down"):
        next(batches)


@pytest.mark.parametrize("options", [{"threads": 0}, {"threads": 1}])
@pytest.mark.parametrize("batch_size", [None, 2])
def test_stream_that_is_left_half_way_is_released(options, batch_size):
    class Source:
        def __arrow_c_stream__(self, requested_schema=None):
            return reader_of(200, ended=ended).__arrow_c_stream__(requested_schema)

    ended = []
    loader = pyecho.EchoLoader(Source(), batch_size=batch_size, **options)
    for _ in loader:
        break
    loader.close()
    del loader, _
    gc.collect()
    assert ended


def broken(type_, good, bad, *others, **options):
    """An array, and what damages its offsets or views: pyarrow checks them when it makes one."""
    numbers = np.array(good, np.int32)
    rows = len(good) // 4 if pa.types.is_string_view(type_) else len(good) - 1
    buffers = [None, pa.py_buffer(numbers), *map(pa.py_buffer, others)]
    array = pa.Array.from_buffers(type_, rows, buffers, **options)
    return array, lambda: np.copyto(numbers, bad)


def encoded(indices, values, damage=lambda: None):
    return pa.DictionaryArray.from_arrays(indices, values, safe=False), damage


FAR = 1 << 30
BROKEN = {
    "offsets that fall": lambda: broken(pa.string(), [0, 3, 5], [0, 5, 3], b"abcdef"),
    "offsets outside": lambda: broken(pa.string(), [0, 2], [0, FAR], b"abc"),
    "negative offsets": lambda: broken(pa.binary(), [0, 3], [-9, 3], b"abcdef"),
    "no UTF-8": lambda: (pa.array([b"\xff\xff"]).view(pa.string()), lambda: None),
    "a view outside": lambda: broken(pa.string_view(), [20, 0, 0, 0], [20, 0, 0, 9], b"x" * 25),
    "lists outside": lambda: broken(
        pa.list_(pa.int8()), [0, 1], [0, FAR], children=[pa.array([1], pa.int8())]
    ),
    "index outside": lambda: encoded([5], ["a"]),
    "negative index": lambda: encoded([-2], ["a"]),
    "index of a number": lambda: encoded([5], [1.5]),
    "text of a dictionary": lambda: encoded([0], *broken(pa.string(), [0, 3], [0, FAR], b"abc")),
}


@pytest.mark.parametrize("which", BROKEN)
@pytest.mark.parametrize("batch_size", [None, 2])
def test_data_that_would_be_read_out_of_bounds_are_refused(which, batch_size):
    array, damage = BROKEN[which]()
    table = pa.table({"x": array})
    sources = (array, pa.chunked_array([array]), table, table.to_reader())
    damage()
    for source in sources:
        with pytest.raises(pyecho.ConfigError, match="data that break the rules of Arrow"):
            list(pyecho.EchoLoader(source, 1, batch_size=batch_size))


# ---------------------------------------------------------------- without pyarrow

PROGRAM = """
import sys

sys.modules["pyarrow"] = None
import polars
import pyecho

[batch] = pyecho.EchoLoader([1, 2], 1, batch_size=2)
batches = [{"x": batch}]
assert len(pyecho.EchoLoader(batches, 2, batch_size=2, unbatch=True)) == 2
try:
    pyecho.EchoLoader(polars.DataFrame({"x": [1, 2]}), 2, batch_size=2)
except pyecho.ConfigError as error:
    print(error)
"""


def test_without_pyarrow_a_frame_is_refused_with_what_to_install():
    run = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert "the source (DataFrame) holds Arrow data, which are read through pyarrow" in run.stdout
    assert "pip install pyarrow" in run.stdout, run.stderr


def test_pyarrow_is_not_imported_for_other_sources():
    program = PROGRAM.replace('sys.modules["pyarrow"] = None\nimport polars\n', "").split("try:")[0]
    program += '\nassert "pyarrow" not in sys.modules'
    subprocess.run([sys.executable, "-P", "-c", program], check=True)
