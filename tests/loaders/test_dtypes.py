"""Every dtype of a fixed size travels, byte by byte."""

import numpy as np
import pytest

import pyecho

NUMPY_DTYPES = [
    *"?bBhHiIlLqQefdgFDG",
    "S5",
    "U7",
    "V3",
    "M8[ns]",
    "M8[D]",
    "m8[us]",
    ">i4",
    ">f8",
    "<f2",
    ">U3",
    ">M8[s]",
    np.dtype([("a", "i1"), ("b", ">f8"), ("c", "U2", (2,))]),
    np.dtype([("a", "i1"), ("b", "f8")], align=True),
    np.dtype({"names": ["x"], "formats": ["f4"], "offsets": [12], "itemsize": 20}),
    np.dtype((np.void, 13)),
]


def random_bytes(dtype, shape):
    """An array of any dtype whose every byte is random (bools apart)."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape))
    rng = np.random.default_rng(count)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind == "U":  # code points have to be valid
        return np.array([f"{n:x}" for n in rng.integers(0, 99, count)], dtype).reshape(shape)
    if dtype.names and "c" in dtype.names:
        array = np.zeros(shape, dtype)
        array["b"] = rng.random(shape)
        array["c"] = "xy"
        return array
    return np.frombuffer(rng.bytes(count * dtype.itemsize), dtype).reshape(shape)


def bytes_of(arrays):
    return b"".join(array.tobytes() for array in arrays)


@pytest.mark.parametrize("dtype", NUMPY_DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)], ids=str)
def test_numpy_dtypes_arrive_bit_by_bit(dtype, shape):
    source = random_bytes(dtype, (4, *shape))
    rows = [np.array(row, dtype=dtype) for row in source]
    batches = list(pyecho.EchoLoader(rows, 1, batch_size=2))
    assert all(batch.dtype == np.dtype(dtype) and batch.shape == (2, *shape) for batch in batches)
    assert bytes_of(batches) == bytes_of(rows)


@pytest.mark.parametrize("dtype", NUMPY_DTYPES, ids=str)
def test_numpy_dtypes_arrive_when_batches_are_split(dtype):
    source = random_bytes(dtype, (6, 2))
    batches = list(pyecho.EchoLoader([source], 1, batch_size=3, unbatch=True))
    assert bytes_of(batches) == source.tobytes()
    batches = list(pyecho.EchoLoader(source, 1, batch_size=3))
    assert bytes_of(batches) == source.tobytes()


def test_byte_order_is_part_of_the_dtype():
    with pytest.raises(pyecho.SpecMismatch, match=r"expected >f4 array.*got float32 array"):
        list(pyecho.EchoLoader([np.zeros(2, ">f4"), np.zeros(2, "<f4")], 1, batch_size=2))


def test_the_length_of_strings_is_part_of_the_dtype():
    with pytest.raises(pyecho.SpecMismatch, match=r"<U3.*got <U5"):
        list(pyecho.EchoLoader([np.array(["abc"]), np.array(["abcde"])], 1, batch_size=2))


def test_variable_width_strings_travel_by_reference():
    array = np.array(["a", "b" * 100], dtype=np.dtypes.StringDType())
    assert list(pyecho.EchoLoader(array, 2, batch_size=2)) == [["a", "a"], ["b" * 100] * 2]


def test_object_arrays_travel_by_reference():
    row = np.array([{"a": 1}, "b"], dtype=object)
    [batch] = pyecho.EchoLoader([row, row], 1, batch_size=2)
    assert batch[0] is row


def test_rows_of_an_object_array_are_its_objects():
    source = np.array(["a", ("b",), None], dtype=object)
    [batch] = pyecho.EchoLoader(source[::2], 1, batch_size=3)
    assert batch == ["a", None]


def test_a_record_dtype_with_objects_inside_is_refused():
    row = np.zeros(2, dtype=[("a", object)])
    with pytest.raises(pyecho.ConfigError, match="Python objects"):
        pyecho.Field((2,), row.dtype)


def test_float16_and_float32_are_not_mixed_up():
    with pytest.raises(pyecho.SpecMismatch, match="float16"):
        list(pyecho.EchoLoader([np.float16(1), np.float32(1)], 1, batch_size=2))


def test_ml_dtypes_travel():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    source = np.arange(4).astype(ml_dtypes.bfloat16)
    [batch] = pyecho.EchoLoader(source, 1, batch_size=4)
    assert batch.dtype == ml_dtypes.bfloat16
    assert batch.tobytes() == source.tobytes()


class JaxLike:
    """An array of a dtype that DLPack has no name for in NumPy, as a bfloat16 array of JAX is."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **arguments):
        raise BufferError("unsupported dtype")

    def __dlpack_device__(self):
        return 1, 0

    def __array__(self, dtype=None, copy=None):
        return self.array


def test_bfloat16_arrays_of_other_libraries_travel():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    torch = pytest.importorskip("torch")
    import pyecho.torch

    source = np.arange(6).astype(ml_dtypes.bfloat16).reshape(2, 3)
    [batch] = pyecho.EchoLoader([JaxLike(row) for row in source], 1, batch_size=2)
    assert batch.dtype == ml_dtypes.bfloat16
    assert batch.tobytes() == source.tobytes()
    [batch] = pyecho.torch.EchoLoader([JaxLike(row) for row in source], 1, batch_size=2)
    assert batch.dtype == torch.bfloat16
    assert batch.tolist() == source.astype(float).tolist()
