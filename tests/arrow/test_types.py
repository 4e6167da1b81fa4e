"""Arrow columns become leaves: what each type becomes, held to what pyarrow itself says."""

import datetime
import decimal
from random import Random

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import pyecho

DAY = datetime.date(2024, 2, 29)
NOON = datetime.datetime(2024, 2, 29, 12, 30, 15)


def rows_of(table, **options):
    """All rows in order, as one batch."""
    options = {"batch_size": 64, "shuffle_buffer": 0} | options
    [batch] = pyecho.EchoLoader(table, 1, **options)
    return batch


def plain(value, like):
    """A column of a batch as to_pylist() shows it, for an Arrow type."""
    if pa.types.is_struct(like):
        columns = [plain(value[each.name], each.type) for each in like]
        names = [each.name for each in like]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    if pa.types.is_fixed_size_binary(like):
        return [row.tobytes() for row in value]
    if isinstance(value, list):
        return [each.tolist() if isinstance(each, np.ndarray) else each for each in value]
    if pa.types.is_time(like):
        moments = np.datetime64(0, "us") + value.astype("m8[us]")
        return [moment.time() for moment in moments.tolist()]
    return (value.astype("M8[D]") if pa.types.is_date(like) else value).tolist()


NUMBERS = [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64()]
NUMBERS += [pa.uint64(), pa.float32(), pa.float64()]
COLUMNS = {
    **{str(kind): pa.array([1, 2, 3, 100, 0], kind) for kind in NUMBERS},
    "float16": pa.array(np.array([1.5, 2, 3, 4, np.inf], np.float16)),
    "bool": pa.array([True, False, False, True, True]),
    "date32": pa.array([DAY + datetime.timedelta(days) for days in range(5)]),
    "date64": pa.array([DAY + datetime.timedelta(days) for days in range(5)], pa.date64()),
    "time32": pa.array([NOON.time()] * 5, pa.time32("s")),
    "time64": pa.array([NOON.time()] * 5, pa.time64("us")),
    "timestamp": pa.array([NOON + datetime.timedelta(days) for days in range(5)]),
    "duration": pa.array([datetime.timedelta(days, 3) for days in range(5)], pa.duration("ms")),
    "fixed binary": pa.array([b"abc", b"de\0", b"\0\0\0", b"fgh", b"ijk"], pa.binary(3)),
    "list": pa.array([[x, x + 1] for x in range(5)], pa.list_(pa.int16(), 2)),
    "bools": pa.array([[True, x > 2, False] for x in range(5)], pa.list_(pa.bool_(), 3)),
    "lists": pa.array(
        [[[x, 1, 2], [x, 4, 5]] for x in range(5)], pa.list_(pa.list_(pa.float64(), 3), 2)
    ),
    "empty lists": pa.array([[]] * 5, pa.list_(pa.int16(), 0)),
    "string": pa.array(["", "a", None, "ä" * 20, "\U0001f600"]),
    "large string": pa.array(["", "a", None, "ä" * 20, "\U0001f600"], pa.large_string()),
    "string view": pa.array(["", "a", None, "ä" * 20, "twelve bytes"], pa.string_view()),
    "binary": pa.array([b"", b"\0", None, b"x" * 20, b"y"]),
    "large binary": pa.array([b"", b"\0", None, b"x" * 20, b"y"], pa.large_binary()),
    "binary view": pa.array([b"", b"\0", None, b"x" * 20, b"y" * 13], pa.binary_view()),
    "nothing": pa.nulls(5),
    "struct": pa.array([{"a": x, "b": {"c": str(x), "d": x / 2}} for x in range(5)]),
    "dictionary": pa.array(["b", "a", None, "b", "b"]).dictionary_encode(),
    "dictionary of numbers": pa.array([5, 5, 7, 7, 5]).dictionary_encode(),
    "dictionary with a null": pa.DictionaryArray.from_arrays([1, 0, 1, 2, 2], ["a", None, "c"]),
    "dictionary in a struct": pa.StructArray.from_arrays(
        [pa.array([1, 2, 1, 1, 2]).dictionary_encode()], ["d"]
    ),
}


def value_type(like):
    if pa.types.is_struct(like):
        return pa.struct([(each.name, value_type(each.type)) for each in like])
    return like.value_type if pa.types.is_dictionary(like) else like


@pytest.mark.parametrize("cut", ["whole", "sliced", "chunked"])
@pytest.mark.parametrize("column", COLUMNS)
def test_types_arrive_as_pyarrow_shows_them(column, cut):
    array = COLUMNS[column]
    pieces = {
        "whole": [array],
        "sliced": [array.slice(1, 3)],
        "chunked": [array.slice(3), array.slice(2, 0), array.slice(1, 2)],
    }
    table = pa.table({"x": pa.chunked_array(pieces[cut])})
    assert plain(rows_of(table)["x"], value_type(array.type)) == table["x"].to_pylist()


def random_column(random, rows, depth=0):
    """A column of any type without nulls that an array cannot hold, perhaps with an offset."""
    kind = random.randrange(5 if depth < 3 else 2)
    if kind == 0:
        column = COLUMNS[random.choice([name for name in COLUMNS if "view" not in name])]
        return column.take([random.randrange(5) for _ in range(rows)])
    if kind == 1:
        return pa.array([random.choice([None, "", "ä", "x" * 20]) for _ in range(rows)])
    before = random.randrange(3)
    if kind == 2:
        names = random.sample("abcd", random.randrange(1, 4))
        columns = [random_column(random, rows + before, depth + 1) for _ in names]
        return pa.StructArray.from_arrays(columns, names)[before:]
    size = random.randrange(1, 4)
    values = pa.array(range((rows + before) * size), random.choice([*NUMBERS[4:], pa.float64()]))
    if kind == 3:
        return pa.FixedSizeListArray.from_arrays(values, size)[before:]
    ends = sorted(random.randrange(len(values) + 1) for _ in range(rows + 1))
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values)


@pytest.mark.parametrize("seed", range(60))
def test_random_tables_arrive_as_pyarrow_shows_them(seed):
    random = Random(seed)
    rows = random.choice([1, 7, 30])
    table = pa.table({f"c{number}": random_column(random, rows) for number in range(3)})
    cut = random.randrange(rows)
    table = pa.concat_tables([table[cut:], table[:0], table[:cut]])[
        random.randrange(min(2, rows)) :
    ]
    batch = rows_of(table)
    for name in table.column_names:
        value, like = batch[name], value_type(table[name].type)
        assert plain(value, like) == table[name].to_pylist()


@pytest.mark.parametrize(
    ("column", "dtype", "shape"),
    [
        ("float16", "f2", ()),
        ("bool", "?", ()),
        ("date32", "M8[D]", ()),
        ("date64", "M8[ms]", ()),
        ("time32", "m8[s]", ()),
        ("time64", "m8[us]", ()),
        ("timestamp", "M8[us]", ()),
        ("duration", "m8[ms]", ()),
        ("fixed binary", "u1", (3,)),
        ("list", "i2", (2,)),
        ("lists", "f8", (2, 3)),
        ("dictionary of numbers", "i8", ()),
    ],
)
def test_dtypes_and_shapes(column, dtype, shape):
    values = rows_of(pa.table({"x": COLUMNS[column]}))["x"]
    assert (values.dtype, values.shape[1:]) == (np.dtype(dtype), shape)


def test_time_zone_leaves_the_time_in_utc():
    table = pa.table({"x": pa.array([NOON], pa.timestamp("ns", "Europe/Paris"))})
    assert rows_of(table)["x"].tolist() == table["x"].cast(pa.int64()).to_pylist()


def tensors(permutation=None):
    type_ = pa.fixed_shape_tensor(pa.int32(), [2, 3], permutation=permutation)
    storage = pa.array(np.arange(24).reshape(4, 6).tolist(), pa.list_(pa.int32(), 6))
    return pa.ExtensionArray.from_storage(type_, storage)


@pytest.mark.parametrize("permutation", [None, [0, 1], [1, 0]])
def test_tensor_has_its_shape(permutation):
    array = tensors(permutation)
    expected = np.asarray(array.to_numpy_ndarray())
    table = pa.table({"x": array})
    assert np.array_equal(rows_of(table)["x"], expected)
    assert np.array_equal(rows_of(table.slice(1, 2))["x"], expected[1:3])


def test_other_extension_types_are_their_storage():
    values = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(range(16))], pa.binary(16)))
    assert rows_of(pa.table({"x": values}))["x"].tolist() == [list(range(16))]


def test_columns_without_a_table_are_rows_by_themselves():
    assert rows_of(pa.chunked_array([[1, 2], [3]])).tolist() == [1, 2, 3]
    assert rows_of(pl.Series(["a", None, "b"])) == ["a", None, "b"]


def test_polars_frames_are_tables():
    frame = pl.DataFrame(
        {
            "number": [1, 2, 3],
            "name": ["a", None, "much longer than twelve"],
            "kind": pl.Series(["x", "y", "x"], dtype=pl.Categorical),
            "size": pl.Series(["S", "L", None], dtype=pl.Enum(["S", "L"])),
            "day": [DAY] * 3,
            "when": [NOON] * 3,
            "image": pl.Series([[[1, 2]], [[3, 4]], [[5, 6]]], dtype=pl.Array(pl.UInt8, (1, 2))),
            "flag": [True, False, True],
            "nothing": [None] * 3,
            "nested": [{"a": 1.5, "b": "c"}] * 3,
        }
    )
    for part in (frame, frame.slice(1, 2), pl.concat([frame, frame[:1]], rechunk=False)):
        batch = rows_of(part)
        nested = batch.pop("nested")
        assert {name: list(column) for name, column in batch.items() if name != "image"} == {
            name: part[name].to_list() for name in batch if name != "image"
        }
        assert batch["image"].tolist() == part["image"].to_list()
        assert (nested["a"].tolist(), nested["b"]) == ([1.5] * len(part), ["c"] * len(part))


# ---------------------------------------------------------------- what has no leaf


NO_LEAF = "the Arrow type .*, for which there is no array; cast it"


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (pa.array([[1]], pa.list_view(pa.int8())), NO_LEAF),
        (pa.array([["a"], []]), "lists of something else than numbers"),
        (pa.array([[[1]]]), "lists of something else than numbers"),
        (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())), NO_LEAF),
        (pa.array([decimal.Decimal("1.5")]), NO_LEAF),
        (pa.array([(1, 2, 3)], pa.month_day_nano_interval()), NO_LEAF),
        (pa.RunEndEncodedArray.from_arrays([2], [1]), NO_LEAF),
        (pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]), NO_LEAF),
        (pa.array([["a", "b"]], pa.list_(pa.string(), 2)), "lists of something else"),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_column_without_a_leaf_is_refused_by_name(array, message, nested):
    if nested:
        array = pa.StructArray.from_arrays([array], ["inner"])
    table = pa.table({"before": pa.nulls(len(array)), "odd": array})
    path = "odd.inner" if nested else "odd"
    for source in (table, table.to_reader()):
        with pytest.raises(pyecho.ConfigError, match=f"^column '{path}' has {message}"):
            list(pyecho.EchoLoader(source, batch_size=2))


def test_columns_of_one_name_are_refused():
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    with pytest.raises(pyecho.ConfigError, match="two columns named 'a'; rename"):
        pyecho.EchoLoader(table, batch_size=2)


# ---------------------------------------------------------------- nulls

TRUE_NULLS = {
    "number": (pa.array([1, 2, 3, None, 5]), "x"),
    "bool": (pa.array([True, True, True, None, True]), "x"),
    "date": (pa.array([DAY, DAY, DAY, None, DAY]), "x"),
    "list": (pa.array([[1], [1], [1], None, [1]], pa.list_(pa.int8(), 1)), "x"),
    "in a list": (pa.array([[1], [1], [1], [None], [1]], pa.list_(pa.int8(), 1)), "x"),
    "struct": (pa.array([{"a": "b"}] * 3 + [None, {"a": "b"}]), "x"),
    "in a struct": (pa.array([{"a": 1}] * 3 + [{"a": None}, {"a": 2}]), r"x\.a"),
    "dictionary": (pa.array([1, 1, 1, None, 1]).dictionary_encode(), "x"),
    "value of a dictionary": (pa.DictionaryArray.from_arrays([0, 0, 0, 1, 0], [1, None]), "x"),
}


@pytest.mark.parametrize("which", TRUE_NULLS)
def test_null_that_no_array_can_hold_names_column_and_row_after_what_came_before(which):
    array, path = TRUE_NULLS[which]
    other = pa.array(["a", None, "b", "c", "d"])
    table = pa.table({"name": other, "x": array})
    table = pa.concat_tables([table.slice(0, 2), table.slice(1, 4)])  # the null is in row 4
    message = rf"^column '{path}' is null in row 4, and an array cannot say so; fill it \(fill_null"
    batches = iter(pyecho.EchoLoader(table, 1, batch_size=2, shuffle_buffer=0))
    assert [next(batches)["name"] for _ in range(2)] == [["a", None], [None, "b"]]
    with pytest.raises(pyecho.ConfigError, match=message):
        next(batches)
    items = iter(pyecho.EchoLoader(table, 1))
    assert len(next(items)["name"]) == 2
    with pytest.raises(pyecho.ConfigError, match=message):
        next(items)


def test_nulls_that_were_sliced_away_are_none():
    table = pa.table({"x": [None, 1, 2, None], "s": [{"a": None}, {"a": 1}, {"a": 2}, None]})
    batch = rows_of(table.slice(1, 2))
    assert batch["x"].tolist() == batch["s"]["a"].tolist() == [1, 2]
