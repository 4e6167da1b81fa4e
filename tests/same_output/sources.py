"""Sources of the configurations, and examples for a buffer.

It is the same on every call, whatever the versions of libraries: nothing here draws random numbers.
Item number n differs from all others in nearly every byte.
"""

import numpy as np
import torch

import pyecho

RECORD = np.dtype([("a", "i1"), ("b", ">f8"), ("c", "V5"), ("d", "u2", (2,))])
PADDED = np.dtype([("a", "i1"), ("b", "f8")], align=True)

UNEVEN = [7, 1, 13, 0, 4, 30, 2]


def pattern(number, shape=(), dtype="f4"):
    """Return an array whose bytes depend on `number`, as an array of no axes does on its value."""
    shape = (shape,) if isinstance(shape, int) else shape
    dtype = np.dtype(dtype)
    count = int(np.prod(shape)) * dtype.itemsize
    mixed = (np.arange(count, dtype=np.uint64) + 10_007 * number) * 2_654_435_761 >> 13
    octets = mixed.astype(np.uint8)
    return (octets & 1 if dtype.kind == "b" else octets).view(dtype).reshape(shape)


def tensor(number, shape=(), dtype=torch.float32):
    """Return a tensor of the same bytes."""
    octets = pattern(number, torch.empty(shape, dtype=dtype).nbytes, "u1")
    return torch.from_numpy(octets).view(dtype).reshape(shape)


def name(number):
    """Return a string of a length of its own."""
    return f"{number:x}" * (1 + number % 3)


# ---------------------------------------------------------------- items: a function of their number


def array(number):
    return pattern(number, (4, 3))


def example(number):
    return {"image": pattern(number, (5, 3), "u1"), "label": number, "weight": number / 8}


def referring(number):
    return {
        "x": pattern(number, 3, "u1"),
        "name": name(number),
        "more": (b"\0" * number, None, [name(number + 1)]),
    }


def anything(number):
    """Return items that have nothing in common."""
    made = (
        pattern(number, number % 5),
        name(number),
        None,
        number / 7,
        {"a": [pattern(number, 2, ">i2"), number]},
        b"bytes" * number,
        np.float16(number),
        (),
        torch.arange(number),
        {number, number + 1},
        1j * number,
        number % 2 == 0,
    )
    return made[number % len(made)]


def views(number):
    """Return arrays of every layout."""
    whole = pattern(number, (6, 8), "i2")
    unaligned = pattern(number, 25, "u1")[1:].view("f8")
    return {
        "strided": whole[::2, ::-1],
        "transposed": whole.T,
        "fortran": np.asfortranarray(whole),
        "repeated": np.broadcast_to(whole[0], (3, 8)),
        "unaligned": unaligned,
    }


def tensor_views(number):
    whole = tensor(number, (4, 6))
    return {
        "transposed": whole.t(),
        "strided": whole[:, ::3],
        "expanded": whole[:1].expand(3, 6),
        "conjugate": torch.complex(whole[0], whole[1]).conj(),
        "grad": torch.full((2,), float(number)).requires_grad_(),
    }


def odd_dtypes(number):
    """Return one leaf of each dtype that is not a plain number of 1 to 8 bytes."""
    return {
        "bool": pattern(number, 7, bool),
        "flag": number % 3 == 0,
        "half": pattern(number, 3, "f2"),
        "complex64": pattern(number, 2, "c8"),
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
        "int8": np.int8(number % 100),
    }


def torch_dtypes(number):
    return {
        "bfloat16": tensor(number, (2, 3), torch.bfloat16),
        "scalar": tensor(number, (), torch.bfloat16),
        "half": tensor(number, 5, torch.float16),
        "float8": tensor(number, 3, torch.float8_e4m3fn),
        "bool": torch.tensor([number % 2 == 0, number % 3 == 0]),
        "complex": tensor(number, 2, torch.complex64),
        "uint16": tensor(number, 2, torch.uint16),
        "nothing": torch.empty(0, 3),
        "array": pattern(number, 3, "u1"),
        "float": number / 4,
        "name": name(number),
    }


# ---------------------------------------------------------------- batches of uneven size


def batches_of(make_batch, sizes):
    """Return ``make_batch(rows)`` of consecutive numbers, one after the other."""
    ends = np.cumsum(sizes).tolist()
    return [make_batch(range(end - size, end)) for end, size in zip(ends, sizes, strict=True)]


def stacked(rows, shape=(), dtype="f4"):
    """Return the patterns of these numbers with a batch axis, also where there are none."""
    shape = (shape,) if isinstance(shape, int) else shape
    return np.array([pattern(row, shape, dtype) for row in rows], dtype).reshape(len(rows), *shape)


def batch_dict(rows):
    return {"image": stacked(rows, 5, "u1"), "label": np.array(rows, "i8")}


def batch_odd(rows):
    return {
        "bool": stacked(rows, 3, bool),
        "half": stacked(rows, 2, "f2"),
        "unicode": np.array([*map(name, rows)], "U9").reshape(-1, 1),
        "record": stacked(rows, (), RECORD),
        "nothing": stacked(rows, 0),
    }


def batch_fortran(rows):
    return np.asfortranarray(stacked(rows, (3, 2), "i2"))


def batch_tensors(rows):
    image = torch.stack([tensor(row, 4, torch.bfloat16) for row in rows])
    return {"image": image, "label": torch.tensor(rows), "name": [name(row) for row in rows]}


# ---------------------------------------------------------------- what fills a buffer


def reserve_all(buffer: pyecho.EchoBuffer) -> None:
    """Write examples in place; every third is given up, and pairs are committed in reverse."""
    for number in range(60):
        first, second = buffer.reserve(), buffer.reserve()
        for reservation, content in ((second, 2 * number + 1), (first, 2 * number)):
            reservation.views["x"][...] = pattern(content, 5, "u1")
            reservation.views["y"][...] = content
            if content % 3:
                reservation.commit()
            else:
                reservation.abort()


def put_mixed(buffer: pyecho.EchoBuffer) -> None:
    """Use all ways to put examples in, one after the other."""
    for number in range(0, 60, 6):
        buffer.put({"x": pattern(number, 5, "u1"), "y": number})
        with buffer.reserve() as views:
            views["x"][...] = pattern(number + 1, 5, "u1")
            views["y"][...] = number + 1
        rows = range(number + 2, number + 6)
        buffer.put_batch({"x": stacked(rows, 5, "u1"), "y": np.array(rows)})
