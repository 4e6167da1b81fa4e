"""Every dtype of a fixed size travels, byte by byte; others travel by reference."""

import numpy as np
import pytest
import torch

import pyecho
import pyecho.torch

NUMPY_DTYPES = [
    *"?bBhHiIlLqQefdgFDG",
    *("S5", "U7", "V3", "M8[ns]", "m8[us]", ">i4", ">f8", ">U3", ">M8[s]"),
    np.dtype([("a", "i1"), ("b", ">f8"), ("c", "U2", (2,))]),
    np.dtype({"names": ["x"], "formats": ["f4"], "offsets": [12], "itemsize": 20}),
]
TORCH_DTYPES = sorted(
    {
        dtype
        for dtype in vars(torch).values()
        if isinstance(dtype, torch.dtype)
        and not str(dtype).startswith(("torch.q", "torch.bits", "torch.int", "torch.uint"))
    }
    | {getattr(torch, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
    key=str,
)


def random_array(dtype, shape):
    """An array of any dtype whose every byte is random, where any byte will do."""
    dtype, count = np.dtype(dtype), int(np.prod(shape))
    rng = np.random.default_rng(count)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind == "U":  # code points have to be valid
        return np.array([f"{n:x}" for n in rng.integers(0, 99, count)], dtype).reshape(shape)
    if dtype.names and "c" in dtype.names:
        array = np.zeros(shape, dtype)
        array["b"], array["c"] = rng.random(shape), "xy"
        return array
    return np.frombuffer(rng.bytes(count * dtype.itemsize), dtype).reshape(shape)


def bytes_of(arrays):
    return b"".join(array.tobytes() for array in arrays)


def emitted(source, loader=pyecho.EchoLoader, **arguments):
    return list(loader(source, 1, shuffle_buffer=0, **arguments))


@pytest.mark.parametrize("dtype", NUMPY_DTYPES, ids=str)
def test_numpy_dtypes_arrive_bit_by_bit(dtype):
    for shape in ((), (3,), (2, 3)):
        source = random_array(dtype, (4, *shape))
        rows = [np.array(row, dtype=dtype) for row in source]
        for given, batches in (
            (rows, emitted(rows, batch_size=2)),
            ([source], emitted(source, batch_size=2)),
            ([source], emitted([source[:3], source[3:]], batch_size=2, unbatch=True)),
        ):
            if not isinstance(batches[0], list):  # strings of a batch are objects
                kinds = {(batch.dtype, batch.shape) for batch in batches}
                assert kinds == {(np.dtype(dtype), (2, *shape))}
                assert bytes_of(batches) == bytes_of(given)


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
def test_torch_dtypes_arrive_bit_by_bit(dtype):
    size = torch.empty((), dtype=dtype).element_size()
    if dtype == torch.bool:
        source = torch.randint(0, 2, (4, 6)).bool()
    else:
        flat = torch.randint(0, 256, (24 * size,), dtype=torch.uint8)
        source = flat.view(dtype).reshape(4, -1)
    for batches in (
        emitted(list(source), pyecho.torch.EchoLoader, batch_size=4),
        emitted([source[:3], source[3:]], pyecho.torch.EchoLoader, batch_size=4, unbatch=True),
    ):
        [batch] = batches
        assert (batch.dtype, batch.shape) == (dtype, source.shape)
        assert torch.equal(batch.view(torch.uint8), source.view(torch.uint8))


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (np.zeros(2, ">f4"), np.zeros(2, "<f4"), "expected >f4 array.*got float32 array"),
        (np.array(["abc"]), np.array(["abcde"]), "<U3.*got <U5"),
        (np.float16(1), np.float32(1), "float16"),
        (torch.zeros(2, dtype=torch.bfloat16), torch.zeros(2, dtype=torch.float16), "bfloat16"),
    ],
)
def test_dtypes_are_not_mixed_up(first, second, message):
    with pytest.raises(pyecho.SpecMismatch, match=message):
        emitted(
            [first, second],
            pyecho.torch.EchoLoader if torch.is_tensor(first) else pyecho.EchoLoader,
            batch_size=2,
        )


def test_strings_of_any_length_and_objects_travel_by_reference():
    array = np.array(["a", "b" * 100], dtype=np.dtypes.StringDType())
    assert emitted(array, batch_size=2) == [["a", "b" * 100]]
    row = np.array([{"a": 1}, "b"], dtype=object)
    [batch] = emitted([row, row], batch_size=2)
    assert batch[0] is row
    assert emitted(np.array(["a", ("b",), None], dtype=object)[::2], batch_size=3) == [["a", None]]
    with pytest.raises(pyecho.ConfigError, match="Python objects"):
        pyecho.Field((2,), np.dtype([("a", object)]))


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


@pytest.mark.parametrize("wrap", [np.asarray, JaxLike])
def test_bfloat16_arrays_travel(wrap):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    source = np.arange(6).astype(ml_dtypes.bfloat16).reshape(2, 3)
    rows = [wrap(row) for row in source]
    [batch] = emitted(rows, batch_size=2)
    assert batch.dtype == ml_dtypes.bfloat16
    assert batch.tobytes() == source.tobytes()
    [batch] = emitted(rows, pyecho.torch.EchoLoader, batch_size=2)
    assert batch.dtype == torch.bfloat16
    assert batch.tolist() == source.astype(float).tolist()
