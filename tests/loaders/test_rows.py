"""Each row of a batch is the item that the info names, bit for bit, whatever its leaves are.

Their order is that of the model, and the draws of `augment` are in test_augment.py.
"""

import numpy as np
import pytest
import torch
from drivers import DRIVERS, Iterated, drivers

import pyecho
import pyecho.torch

RECORD = np.dtype([("a", "i1"), ("b", ">f8"), ("c", "V5"), ("d", "u2", (2,))])
PADDED = np.dtype([("a", "i1"), ("b", "f8")], align=True)
COUNT = 30


def pattern(number, shape=(), dtype="f4"):
    """Return an array whose bytes depend on `number`, and differ from those of other numbers."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape)) * dtype.itemsize
    mixed = (np.arange(count, dtype=np.uint64) + 10_007 * number) * 2_654_435_761 >> 13
    octets = mixed.astype(np.uint8)
    return (octets & 1 if dtype.kind == "b" else octets).view(dtype).reshape(shape)


def tensor(number, shape=(), dtype=torch.float32):
    octets = pattern(number, torch.empty(shape, dtype=dtype).nbytes, "u1")
    return torch.from_numpy(octets).view(dtype).reshape(shape)


def name(number):
    return f"{number:x}" * (1 + number % 3)


def referring(number):
    more = (b"\0" * number, None, [name(number + 1)])
    return {"x": pattern(number, 3, "u1"), "name": name(number), "more": more}


def layouts(number):
    whole = pattern(number, (6, 8), "i2")
    return {
        "strided": whole[::2, ::-1],
        "transposed": whole.T,
        "fortran": np.asfortranarray(whole),
        "repeated": np.broadcast_to(whole[0], (3, 8)),
        "unaligned": pattern(number, 25, "u1")[1:].view("f8"),
    }


def layouts_of_tensors(number):
    whole = tensor(number, (4, 6))
    return {
        "transposed": whole.t(),
        "strided": whole[:, ::3],
        "expanded": whole[:1].expand(3, 6),
        "conjugate": torch.complex(whole[0], whole[1]).conj(),
        "grad": torch.full((2,), float(number)).requires_grad_(),
    }


def odd_dtypes(number):
    return {
        "bool": pattern(number, 7, bool),
        "flag": number % 3 == 0,
        "half": pattern(number, 3, "f2"),
        "complex": complex(number, -number),
        "swapped": pattern(number, (2, 2), ">i4"),
        "unicode": np.array([name(number), "é"], "U9"),
        "bytes": np.array(name(number), "S5"),
        "record": pattern(number, 2, RECORD),
        "padded": pattern(number, 3, PADDED),
        "void": pattern(number, (), "V3"),
        "date": np.datetime64(number, "D"),
        "time": pattern(number, 2, "m8[us]"),
        "nothing": pattern(number, (0, 4)),
        "int8": np.int8(number),
        "int": number,
        "float": number / 4,
        **{code: pattern(number, 2, code) for code in "bBhHiIqQefdgFDG"},
    }


TORCH_DTYPES = [
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128"),
    *(name for name in vars(torch) if name.startswith(("float8_", "float4_"))),
]


def dtypes_of_torch(number):
    return {
        **{name: tensor(number, 2, getattr(torch, name)) for name in TORCH_DTYPES},
        "wide": tensor(number, (2, 3), torch.bfloat16),
        "scalar": tensor(number, (), torch.bfloat16),
        "bool": torch.tensor([number % 2 == 0, number % 3 == 0]),
        "complex": tensor(number, 2, torch.complex64),
        "nothing": torch.empty(0, 3),
        "array": pattern(number, 3, "u1"),
        "float": number / 4,
        "name": name(number),
    }


KINDS = [referring, layouts, odd_dtypes, layouts_of_tensors, dtypes_of_torch]
OF_TORCH = [layouts_of_tensors, dtypes_of_torch]


def bits(value, of_torch=False):
    """Return a leaf as plain values; as the loader of PyTorch makes it of an item's."""
    if isinstance(value, dict):
        return {key: bits(each, of_torch) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [bits(each, of_torch) for each in value]
    if isinstance(value, str | bytes | None):
        return value
    if of_torch and not isinstance(value, torch.Tensor):
        value = torch.as_tensor(np.asarray(value))
    if isinstance(value, torch.Tensor):
        octets = value.detach().resolve_conj().contiguous().reshape(-1).view(torch.uint8)
        return str(value.dtype), tuple(value.shape), octets.tolist()
    value = np.asarray(value)
    return str(value.dtype), value.shape, value.tobytes()


def row_of(batch, like, row):
    """Return a row as a nest like an item."""
    if isinstance(like, dict):
        return {key: row_of(batch[key], each, row) for key, each in like.items()}
    if isinstance(like, list | tuple):
        return [row_of(one, other, row) for one, other in zip(batch, like, strict=True)]
    return batch[row] if isinstance(batch, list) else batch[row, ...]


def columns_of(items, begin, end):
    """Return a batch of some items, its arrays in Fortran's order."""

    def column(leaves):
        if isinstance(leaves[0], torch.Tensor):
            return torch.stack(leaves)[begin:end]
        if isinstance(leaves[0], str):
            return leaves[begin:end]
        dtype = np.asarray(leaves[0]).dtype  # np.stack() would change its byte order
        return np.asfortranarray(np.array(leaves, dtype)[begin:end])

    return {key: column([item[key] for item in items]) for key in items[0]}


def assert_rows_are(items, source, of_torch, **options):
    loader = (pyecho.torch if of_torch else pyecho).EchoLoader(
        source, 2, batch_size=7, shuffle_buffer=9, with_info=True, **options
    )
    uses = 0
    for batch, info in loader:
        for row, index in enumerate(info.source_index.tolist()):
            uses += 1
            found = bits(row_of(batch, items[index], row))
            assert found == bits(items[index], of_torch)
    assert uses == 2 * COUNT


@drivers
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_the_items(kind, driver):
    items = list(map(kind, range(COUNT)))
    source = items if driver == "in memory" else Iterated(items)
    assert_rows_are(items, source, kind in OF_TORCH, **DRIVERS[driver])


@pytest.mark.parametrize("driver", ["in memory", "workers"])
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("kind", [odd_dtypes, dtypes_of_torch])
def test_rows_are_those_of_the_batches_that_are_split(kind, driver):
    items = list(map(kind, range(COUNT)))
    for item in items:
        for key in ("bytes", "padded"):  # columns of objects; np.array() leaves padding out
            item.pop(key, None)
    ends = [0, 7, 8, 21, 21, 25, COUNT]
    source = [columns_of(items, *ends[place : place + 2]) for place in range(6)]
    assert_rows_are(items, source, kind in OF_TORCH, unbatch=True, **DRIVERS[driver])
