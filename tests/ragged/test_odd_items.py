"""Items, states and views that go wrong: nothing is read or written where it must not be."""

import numpy as np
import pytest

import pyecho
from pyecho import EchoBuffer, EchoLoader, Field, ops
from pyecho.state.loaded import digest

FIELD = Field((None, None), "uint8", max_bytes=10_000)


def test_views_of_a_reservation_outlive_what_becomes_of_it():
    buffer = EchoBuffer({"x": FIELD}, batch_size=1, factor=1, threads=0)
    kept = []
    for fails in (True, False):
        try:
            with buffer.reserve(shapes={"x": (50, 60)}) as views:
                views["x"][...] = 7
                kept += [views["x"], views["x"][3]]
                if fails:
                    raise KeyError
        except KeyError:
            pass
    buffer.close()
    [batch] = buffer
    assert (batch["x"].row(0) == 7).all()
    kept[1][...] = 1  # a view of an example that was aborted
    assert all(view.max() in (1, 7) for view in kept)


@pytest.mark.parametrize(
    "operation", [ops.RandomCrop((4, 4)), ops.Resize((5, 5)), ops.RandomResizedCrop(3)]
)
def test_items_that_are_read_again_must_fit_the_operations(operation):
    items = [np.zeros((6 + number, 8), np.uint8) for number in range(12)]

    def loader():
        return EchoLoader(
            list(items), 3, batch_size=4, shuffle_buffer=6, fields=FIELD, ops=[operation]
        )

    first = loader()
    iterator = iter(first)
    next(iterator)
    state = first.state_dict(payload=False)
    items[:] = [np.zeros((0, 8), np.uint8)] * 12
    other = loader()
    other.load_state_dict(state)
    with pytest.raises(pyecho.EchoError):
        list(other)


def test_columns_of_arrays_stay_the_user_s():
    torch = pytest.importorskip("torch")
    batch = {"t": [torch.ones(2), torch.ones(3)], "n": np.arange(2)}
    field = Field((None,), "float32", max_bytes=100)
    loader = EchoLoader([batch], 2, batch_size=2, unbatch=True, fields={"t": field})
    assert sum(len(each["n"]) for each in loader) == 4
    assert all(isinstance(each, torch.Tensor) for each in batch["t"])


def test_row_larger_than_any_example_may_be_is_refused():
    items = [np.zeros((1, 9000), np.uint8)]
    loader = EchoLoader(items, 1, batch_size=1, fields=FIELD, ops=[ops.Resize(4096)])
    with pytest.raises(pyecho.SpecMismatch, match="more elements than an example may have"):
        list(loader)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        *[("uint8", 300), ("uint8", -1), ("int32", float("nan")), ("float32", 1j), ("bool", 5)],
        *[("int64", float("inf")), ("int64", 2.0**63), ("float16", 1e6), ("float16", -65505)],
        *[("float32", 1e39), ("float64", 10**400), ("complex64", 1e39j), ("uint8", 0.5)],
    ],
)
def test_pad_that_is_no_value_of_the_leaf_is_refused(dtype, value):
    items = [np.zeros(3, dtype)]
    field = Field((None,), dtype, max_bytes=100, pad=value)
    with pytest.raises(pyecho.ConfigError, match="is no value of the leaf"):
        list(EchoLoader(items, 1, batch_size=1, fields=field))


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        *[("float16", float("inf")), ("float32", float("nan")), ("float16", 65504)],
        *[
            ("uint8", 255.0),
            ("bool", True),
            ("int8", np.int64(-128)),
            ("float32", np.longdouble(2)),
        ],
        *[("complex64", 1j), ("complex64", 2), ("int32", np.float32(3)), ("float32", 0.1)],
    ],
)
def test_pad_that_is_a_value_of_the_leaf_fills_its_rows(dtype, value):
    items = [np.zeros(3, dtype), np.zeros(2, dtype)]
    field = Field((None,), dtype, max_bytes=100, pad=value)
    [batch] = EchoLoader(items, 1, batch_size=2, shuffle_buffer=0, fields=field)
    np.testing.assert_array_equal(batch.values[1, 2], np.array(value).astype(dtype))


@pytest.mark.parametrize("pad", [np.timedelta64(2, "ns"), np.str_("x"), [0], np.zeros(1)])
def test_pad_that_is_no_number_is_refused(pad):
    with pytest.raises(pyecho.ConfigError, match="pad must be a number"):
        Field((None,), "int64", max_bytes=100, pad=pad)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((True,), "u1"), "an extent of a shape must be an int, got True"),
        (((2.0,), "u1"), "an extent of a shape must be an int, got 2.0"),
        (("3", "u1"), "an extent of a shape must be an int, got '3'"),
        ((-1, "u1"), "an extent of a shape must be at least 0"),
        (((2**70,), "u1"), "an extent of a shape must be at least 0"),
        ((3, "uint9"), "needs a dtype that NumPy knows, got 'uint9'"),
        (((None,), "u1", 0), "max_bytes must be at least 1"),
        (((None,), "u1", True), "max_bytes must be an int, got True"),
        (((None,), "u1", np.timedelta64(2, "D")), "max_bytes must be an int"),
    ],
)
def test_wrong_arguments_of_a_field_are_named(arguments, message):
    with pytest.raises(pyecho.ConfigError, match=message):
        Field(*arguments)


def test_pad_needs_a_number_and_rows_that_differ():
    with pytest.raises(pyecho.ConfigError, match="pad must be a number, got 'x'"):
        Field((None,), "uint8", max_bytes=100, pad="x")
    with pytest.raises(pyecho.ConfigError, match="may have pad; any other has neither"):
        Field((3,), "uint8", pad=0)
    field = Field((None, None), "uint8", max_bytes=100, pad=0)
    options = {"fields": field, "ops": [ops.RandomCrop((1, 1))]}
    with pytest.raises(pyecho.ConfigError, match=r"one shape, \(1, 1\).*pad=0; leave out one"):
        list(EchoLoader([np.zeros((2, 3), np.uint8)], 1, batch_size=1, **options))


def test_record_that_is_named_like_a_number_is_none():
    items = np.zeros((3, 4), [("float32", "i8")])
    with pytest.raises(pyecho.ConfigError, match="Normalize needs numbers"):
        list(EchoLoader(items, 1, batch_size=1, ops=[ops.Normalize(0, 1)]))


def test_states_with_other_shapes_are_refused():
    loader = EchoLoader(
        [np.zeros((2, 3), np.uint8)] * 9, 2, batch_size=2, shuffle_buffer=5, fields=FIELD
    )
    iterator = iter(loader)
    next(iterator)
    for shape in ((0, 2**62), (-1, 2), (2**40, 2**40), (6, 2)):
        state = loader.state_dict()
        state["unspent"]["columns"][0]["shapes"][0] = shape
        state["digest"] = digest(state)
        other = EchoLoader([], 2, batch_size=2, shuffle_buffer=5, fields=FIELD)
        with pytest.raises((pyecho.CheckpointError, pyecho.ConfigError)):
            other.load_state_dict(state)
            next(iter(other))


def test_list_of_arrays_that_differ_in_size_is_one_of_items():
    items = [np.full((6, 2 + number), number, np.uint8) for number in range(3)]
    [batch] = EchoLoader(items, 1, batch_size=3, shuffle_buffer=1, fields=FIELD)
    assert batch.shapes.tolist() == [list(item.shape) for item in items]
    columns = [np.zeros((6, 2), np.uint8), np.arange(6)]
    first = Field((None,), "uint8", max_bytes=9)
    [(_, numbers)] = EchoLoader(columns, 1, batch_size=6, fields={"0": first})
    assert sorted(numbers) == list(range(6))


@pytest.mark.parametrize("odd", [0, 1])
@pytest.mark.parametrize("as_column", [False, True])
def test_masks_of_a_leaf_of_variable_size_are_refused_in_batches(odd, as_column):
    rows = [np.arange(4.0), np.arange(3.0)]
    rows[odd] = np.ma.masked_array(rows[odd], rows[odd] == 1)
    if as_column:
        rows = np.array([*rows, None], object)[:2]
    buffer = EchoBuffer({"x": Field((None,), "float64", max_bytes=99)}, batch_size=2)
    with pytest.raises(pyecho.ConfigError, match=r"item\['x'\].*lose their mask"):
        buffer.put_batch({"x": rows})


def test_masks_of_a_column_of_texts_or_objects_are_refused():
    for dtype in ("U3", object):
        column = np.ma.masked_array(np.array(["a", "b"], dtype), [0, 1])
        buffer = EchoBuffer({"x": Field((), object)}, batch_size=2)
        with pytest.raises(pyecho.ConfigError, match="lose their mask"):
            buffer.put_batch({"x": column})


def test_rows_of_a_ragged_batch_count_from_the_end_too():
    items = [np.arange(size) for size in (2, 5, 3)]
    field = Field((None,), "int64", max_bytes=99)
    [batch] = EchoLoader(items, 1, batch_size=3, shuffle_buffer=0, fields=field)
    for index in range(-3, 3):
        np.testing.assert_array_equal(batch.row(index), items[index])
    for index in (-4, 3):
        with pytest.raises(IndexError):
            batch.row(index)
