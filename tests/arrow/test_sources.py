"""Arrow tables and streams as sources: epochs, lengths, states, threads, and whose memory it is."""

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from drivers import DRIVERS, drivers, pyecho_threads

import pyecho
import pyecho.torch

ROWS = 23


def table(rows=ROWS, chunk=5):
    """Numbers and names, in chunks."""
    made = pa.table(
        {"x": pa.array(range(rows), pa.int64()), "name": [f"n{x}" for x in range(rows)]}
    )
    return pa.Table.from_batches(made.to_batches(max_chunksize=chunk), made.schema)


class Query:
    """Makes a new stream each time, and knows no length, as a relation of DuckDB's."""

    def __init__(self, source):
        self.source = source

    def __arrow_c_stream__(self, requested_schema=None):
        return self.source.__arrow_c_stream__(requested_schema)


SOURCES = {
    "table": table,
    "record batch": lambda: table().combine_chunks().to_batches()[0],
    "frame": lambda: pl.DataFrame(table()),
    "query": lambda: Query(table()),
    "reader": lambda: table().to_reader(),
}
many = pytest.mark.parametrize("kind", SOURCES)


def emitted(batches):
    """The contents of batches; each name is checked against its number."""
    found = []
    for batch in batches:
        numbers = batch["x"].tolist()
        assert list(batch["name"]) == [f"n{x}" for x in numbers]
        found += numbers
        del batch
    return found


@pytest.mark.parametrize("kind", ["table", "record batch", "frame"])
def test_tables_know_their_length_and_are_read_without_a_thread(kind):
    before = set(pyecho_threads())
    loader = pyecho.EchoLoader(SOURCES[kind](), 2.5, batch_size=4)
    assert len(loader) == -(-58 // 4)
    assert len(emitted(loader)) == 58
    assert not set(pyecho_threads()) - before


@pytest.mark.parametrize("kind", ["query", "reader"])
def test_streams_know_none_and_are_read_in_a_thread(kind):
    before = set(pyecho_threads())
    loader = pyecho.EchoLoader(SOURCES[kind](), 2, batch_size=4)
    with pytest.raises(TypeError, match="does not tell how many items"):
        len(loader)
    batches = iter(loader)
    next(batches)
    assert set(pyecho_threads()) - before


def test_mapped_table_is_read_in_a_thread(tmp_path):
    with (
        pa.OSFile(str(tmp_path / "x.arrow"), "wb") as file,
        pa.ipc.new_file(file, table().schema) as writer,
    ):
        writer.write_table(table())
    before = set(pyecho_threads())
    with pa.memory_map(str(tmp_path / "x.arrow")) as file:
        batches = iter(pyecho.EchoLoader(pa.ipc.open_file(file).read_all(), 2, batch_size=4))
        next(batches)
        assert set(pyecho_threads()) - before


# ---------------------------------------------------------------- single columns

VECTORS = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(12, dtype=np.float32)), 3)
COLUMNS = {
    "array": VECTORS,
    "sliced array": pa.concat_arrays([VECTORS[3:], VECTORS])[1:],
    "chunked array": pa.chunked_array([VECTORS[:3], VECTORS[3:]]),
    "series": pl.Series(VECTORS),
}
ALL = np.arange(12.0).reshape(4, 3).tolist()


@drivers
@pytest.mark.parametrize("kind", COLUMNS)
def test_rows_of_a_column_are_the_examples(kind, driver):
    options = {"batch_size": 4, "shuffle_buffer": 0, **DRIVERS[driver]}
    loader = pyecho.EchoLoader(COLUMNS[kind], 1, **options)
    assert len(loader) == 1
    for _ in range(2):
        [batch] = loader
        assert batch.dtype == np.float32
        assert batch.tolist() == ALL


@pytest.mark.parametrize("batch_size", [None, 2])
def test_array_of_structs_or_strings_is_read_as_a_column_of_a_table(batch_size):
    structs = pa.array([{"x": 1, "name": "a"}, {"x": 2, "name": "b"}])
    options = {"batch_size": batch_size, "shuffle_buffer": 0}
    [batch] = pyecho.EchoLoader(structs, 1, **options)
    assert batch["x"].tolist() == [1, 2]
    assert list(batch["name"]) == ["a", "b"]
    [batch] = pyecho.EchoLoader(structs.field("name"), 1, **options)
    assert list(batch) == ["a", "b"]


def test_null_in_an_array_is_refused_with_its_row():
    with pytest.raises(pyecho.ConfigError, match="the source is null in row 1"):
        list(pyecho.EchoLoader(pa.array([1, None]), 1, batch_size=1))


# ---------------------------------------------------------------- batch echoing


def test_item_shows_the_memory_of_the_table_and_cannot_be_written_to():
    source = table()
    for number, item in enumerate(pyecho.EchoLoader(source, 1)):
        assert np.shares_memory(item["x"], source["x"].chunk(number).to_numpy())
        with pytest.raises(ValueError, match="read-only"):
            item["x"][0] = 1
    kept = [item["x"] for item in pyecho.EchoLoader(table(), 1)]
    assert np.concatenate(kept).tolist() == list(range(ROWS)), "they own the memory"


def test_copies_may_be_written_to():
    source = table()
    for item in pyecho.EchoLoader(source, 2, copy=True):
        item["x"][:] = -1
        item["name"][0] = "other"
    assert source.equals(table())


# ---------------------------------------------------------------- leaving and going on


def test_table_is_skipped_without_reading_its_columns():
    def names(first):
        texts = pa.array([first] * 3000 + [b"name"] * 9000)
        return pa.table({"name": pa.StringArray.from_buffers(12_000, *texts.buffers()[1:])})

    options = {"batch_size": 100, "shuffle_buffer": 0, "factor": 1}
    loader = pyecho.EchoLoader(names(b"good"), **options)
    batches = iter(loader)
    for _ in range(45):
        next(batches)
    unreadable = pyecho.EchoLoader(names(b"\xff"), **options)
    unreadable.load_state_dict(loader.state_dict())
    assert [batch["name"] for batch in unreadable] == [["name"] * 100] * 75
    with pytest.raises(pyecho.ConfigError, match=r"column 'name' has data that break .* UTF8"):
        list(unreadable)


# ---------------------------------------------------------------- errors, other consumers


def test_empty_table_yields_nothing():
    loader = pyecho.EchoLoader(table(0), 2, batch_size=4)
    assert len(loader) == 0
    with pytest.warns(RuntimeWarning, match="yielded nothing"):
        assert list(loader) == []


def test_frame_of_pandas_is_refused_with_a_hint():
    class Frame(Query):
        columns = iterrows = iloc = ()

    with pytest.raises(pyecho.ConfigError, match=r"from_pandas\(df, preserve_index=False\)"):
        pyecho.EchoLoader(Frame(table()))
