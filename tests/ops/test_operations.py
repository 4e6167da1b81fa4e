"""Operations do what their reference in plain NumPy does: bit for bit, but for resampling."""

import ml_dtypes
import numpy as np
import ops_reference as reference
import pytest

import pyecho
from pyecho import ops
from pyecho.items.programs import rows_with
from pyecho.items.spec import NUMPY, Field

DTYPES = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
DTYPES += ["float16", "float32", "float64"]


def made(item, operations, key):
    """The row that the native side makes of an item."""
    [(field, program)], _ = rows_with(operations, Field(item.shape, item.dtype), NUMPY)
    return program.run(key, np.ascontiguousarray(item)).view(field.dtype).reshape(field.shape)


def item_of(rng, shape, dtype):
    dtype = np.dtype(dtype)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return rng.normal(0, 50, shape).astype(dtype)


def some_geometry(rng, shape):
    """Operations without resampling on an item of this shape, and the shape after them."""
    shape, found = list(shape), []
    for _ in range(int(rng.integers(1, 5))):
        count = int(rng.integers(1, len(shape) + 1))
        axes = tuple(int(axis) for axis in rng.permutation(len(shape))[:count])
        kind = rng.choice(["crop", "center", "flip", "pad"])
        if kind == "pad" and any(isinstance(operation, ops.Pad) for operation in found):
            continue
        if kind == "flip":
            found.append(ops.RandomFlip(int(rng.integers(-len(shape), len(shape)))))
        elif kind == "pad":
            to = tuple(int(rng.integers(1, shape[axis] + 6)) for axis in axes)
            found.append(ops.Pad(to, int(rng.integers(0, 100)), axes))
            for axis, extent in zip(axes, to, strict=True):
                shape[axis] = max(shape[axis], extent)
        else:
            part = tuple(int(rng.integers(1, shape[axis] + 1)) for axis in axes)
            found.append((ops.RandomCrop if kind == "crop" else ops.CenterCrop)(part, axes))
            for axis, extent in zip(axes, part, strict=True):
                shape[axis] = extent
    return found, shape


def some_values(rng, shape):
    """Operations on the values of an item of this shape."""
    found, channels = [], shape[-1]
    if rng.random() < 0.3 and len(shape) >= 2:
        size = int(rng.integers(1, max(shape) + 2))
        found.append(ops.Cutout(size, 0.7, int(rng.integers(0, 100))))
    if rng.random() < 0.5:
        several = rng.random() < 0.5
        mean = tuple(rng.random(channels)) if several else float(rng.random())
        std = tuple(rng.random(channels) + 0.1) if several else float(rng.random() + 0.1)
        found.append(ops.Normalize(mean, std))
        if rng.random() < 0.5:
            found.append(ops.Cast(rng.choice(["float16", "float64", "float32"])))
    if rng.random() < 0.3 and len(shape) >= 3:
        found.append(ops.ToCHW())
    return found


@pytest.mark.parametrize("seed", range(10))
def test_operations_without_resampling_agree_bit_for_bit(seed):
    rng = np.random.default_rng(seed)
    for _ in range(1000):
        shape = tuple(int(each) for each in rng.integers(1, 12, int(rng.integers(1, 5))))
        item = item_of(rng, shape, rng.choice(DTYPES))
        operations, after = some_geometry(rng, shape)
        operations += some_values(rng, after)
        key = int(rng.integers(0, 2**63))
        found, wanted = made(item, operations, key), reference.transformed(item, operations, key)
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), operations
        np.testing.assert_array_equal(found, wanted, str((operations, key)))


@pytest.mark.parametrize("seed", range(4))
def test_resampling_is_within_one_level(seed):
    rng = np.random.default_rng(seed)
    for _ in range(250):
        rows, columns = (int(each) for each in rng.integers(1, 90, 2))
        shape = (rows, columns, int(rng.choice([1, 2, 3, 4, 5])))
        dtype = rng.choice(["uint8", "uint8", "uint16", "float32"])
        item = np.abs(item_of(rng, shape, dtype))
        size = tuple(int(each) for each in rng.integers(1, 70, 2))
        first = [
            ops.RandomResizedCrop(size),
            ops.Resize(size),
            ops.Resize(int(rng.integers(1, 70))),
            ops.Resize(size, interpolation="nearest"),
        ][int(rng.integers(4))]
        part = [ops.RandomCrop((rows - rows // 3, columns - columns // 4)), ops.RandomFlip(0)]
        operations = [*part[int(rng.integers(3)) :], first, ops.RandomFlip(1)]
        if rng.random() < 0.3:
            operations += [ops.CenterCrop(1, axes=0), ops.Pad((9, 9), 7)]
        if rng.random() < 0.3:
            operations.append(ops.ToCHW())
        key = int(rng.integers(0, 2**63))
        found = made(item, operations, key).astype(np.float64)
        wanted = reference.transformed(item, operations, key).astype(np.float64)
        assert found.shape == wanted.shape
        level = 1 if item.dtype.kind == "u" else 1e-4 * (1 + np.abs(wanted).max())
        assert np.abs(found - wanted).max(initial=0) <= level, (operations, key, shape)


def test_resize_is_within_one_level_of_pillow():
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for _ in range(300):
        rows, columns, high, wide = (int(each) for each in rng.integers(1, 120, 4))
        item = rng.integers(0, 256, (rows, columns, 3), np.uint8)
        found = made(item, [ops.Resize((high, wide))], 0)
        wanted = image.fromarray(item).resize((wide, high), image.Resampling.BILINEAR)
        assert np.abs(found.astype(int) - np.asarray(wanted).astype(int)).max() <= 1


@pytest.mark.parametrize("seed", range(3))
def test_part_that_is_resampled_in_channels_first_items_and_in_clips(seed):
    rng = np.random.default_rng(seed)
    clip = rng.integers(0, 256, (5, 30, 40, 3), np.uint8)
    found = made(clip, [ops.RandomResizedCrop(16), ops.Normalize(0.5, 0.5), ops.ToCHW()], seed)
    assert found.shape == (3, 5, 16, 16)
    for frame in range(5):
        one = [ops.RandomResizedCrop(16), ops.Normalize(0.5, 0.5), ops.ToCHW()]
        np.testing.assert_allclose(found[:, frame], made(clip[frame], one, seed), atol=2 / 127)
    channels_first = np.ascontiguousarray(np.moveaxis(clip[0], -1, 0))
    found = made(channels_first, [ops.RandomResizedCrop(16, axes=(1, 2))], seed)
    wanted = made(clip[0], [ops.RandomResizedCrop(16), ops.ToCHW()], seed)
    assert np.abs(found.astype(int) - wanted.astype(int)).max() <= 1


def test_every_half_is_cast_to_a_float_and_back_and_floats_are_rounded_to_the_nearest_half():
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    floats = made(halves, [ops.Cast("float32")], 0)
    np.testing.assert_array_equal(floats, halves.astype(np.float32))
    np.testing.assert_array_equal(made(floats, [ops.Cast("float16")], 0), halves)
    bits = np.random.default_rng(0).integers(0, 2**32, 10**6, np.uint32)
    bits[::2] = (bits[::2] & 0x87FFFFFF) + 0x33000000  # about as large as halves are
    floats = bits.view(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for dtype in (np.float16, ml_dtypes.bfloat16):
            rounded = made(floats, [ops.Cast(np.dtype(dtype).name)], 0)
            wanted = floats.astype(dtype).astype(np.float32)
            np.testing.assert_array_equal(rounded.astype(np.float32), wanted)


def test_floats_are_cast_to_the_nearest_integers_and_saturate():
    floats = np.array([2.5, 3.5, -0.6, 255.4, 1e9, -np.inf, np.nan, 2.0**63, -(2.0**63), 2.0**64])
    for dtype, wanted in {
        "uint8": [2, 4, 0, 255, 255, 0, 0, 255, 0, 255],
        "int8": [2, 4, -1, 127, 127, -128, 0, 127, -128, 127],
        "int64": [2, 4, -1, 255, 10**9, -(2**63), 0, 2**63 - 1, -(2**63), 2**63 - 1],
        "uint64": [2, 4, 0, 255, 10**9, 0, 0, 2**63, 0, 2**64 - 1],
    }.items():
        assert made(floats, [ops.Cast(dtype)], 0).tolist() == wanted


def test_bfloat16_comes_out_of_a_cast_and_goes_in():
    item = np.random.default_rng(0).normal(0, 5, (7, 9)).astype(np.float32)
    found = made(item, [ops.Cast("bfloat16")], 0)
    assert found.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(found, item.astype(ml_dtypes.bfloat16))
    np.testing.assert_array_equal(made(found, [ops.Cast("float32")], 0), found.astype(np.float32))


def test_elements_that_are_no_numbers_can_be_moved():
    item = np.arange(24).reshape(4, 6).astype([("a", "i4"), ("b", "S3")])
    operations = [ops.RandomCrop((2, 3)), ops.RandomFlip(0)]
    np.testing.assert_array_equal(
        made(item, operations, 3), reference.transformed(item, operations, 3)
    )
    for operation in (ops.Normalize(0, 1), ops.Resize(2)):
        with pytest.raises(pyecho.ConfigError, match=f"{type(operation).__name__} needs numbers"):
            made(item, [operation], 0)


@pytest.mark.parametrize(
    ("operations", "shape", "message"),
    [
        ([ops.RandomCrop((9, 2))], (8, 8), "RandomCrop.*9.*8"),
        ([ops.CenterCrop((2, 2, 2))], (8, 8), "CenterCrop"),
        ([ops.RandomCrop(2, axes=4)], (8, 8), "RandomCrop"),
        ([ops.RandomCrop((2, 2), axes=(0, -2))], (8, 8), "twice"),
        ([ops.Resize(4), ops.RandomResizedCrop(4)], (8, 8, 3), "RandomResizedCrop.*only one"),
        ([ops.Pad(9), ops.Pad(9, axes=1)], (8, 8, 3), "Pad.*only one"),
        ([ops.Cutout(2), ops.Cutout(3)], (8, 8, 3), "Cutout.*only one"),
        ([ops.Resize(4), ops.Resize(4)], (8, 8, 3), "Resize.*only one"),
        ([ops.Normalize(0, 1), ops.Normalize(0, 1)], (8, 8, 3), "Normalize.*only one"),
        ([ops.Normalize(0, 1), ops.RandomFlip(0)], (8, 8, 3), "RandomFlip.*before Normalize"),
        ([ops.Resize(4, axes=(0, 2))], (8, 8, 3), "Resize needs two axes side by side"),
        ([ops.CenterCrop(1, axes=3)], (8, 8, 3), "CenterCrop"),
        (
            [ops.Pad((1,), axes=(0, 1))],
            (8, 8, 3),
            "Pad needs a size for each of its axes",
        ),
        ([ops.Pad(9, 256)], (8, 8, 3), "Pad needs a value that the item's elements can have"),
        ([ops.Pad((9, 9)), ops.Resize(4)], (8, 8, 3), "Resize.*before Pad"),
        ([ops.Resize(4), ops.RandomFlip(2)], (8, 8, 3), "RandomFlip.*behind axis 1"),
        ([ops.CenterCrop(1, axes=2), ops.Resize(4)], (8, 8, 3), "Resize.*behind axis 1"),
        ([ops.ToCHW(), ops.RandomCrop(2)], (8, 8, 3), "RandomCrop"),
        ([ops.Cast("float32"), ops.Normalize(0, 1)], (8, 8, 3), "Normalize"),
        ([ops.Normalize((0, 0), (1, 1))], (8, 8, 3), "Normalize.*2.*3"),
        ([ops.Normalize((0, 0), 1)], (8, 8, 3), "Normalize"),
        ([ops.Normalize(0, 0)], (8, 8, 3), "Normalize"),
        ([ops.RandomFlip(3)], (8, 8), "RandomFlip"),
        ([ops.RandomFlip(0, p=2)], (8, 8), "RandomFlip"),
        ([ops.Cast("str")], (8, 8), "Cast"),
        ([ops.Resize((2, 2, 2))], (8, 8, 8), "Resize"),
        ([ops.RandomResizedCrop(4, scale=(0.5, 0.2))], (8, 8), "RandomResizedCrop"),
        ([ops.Resize(4, interpolation="cubic")], (8, 8), "interpolation"),
        ([ops.Resize(4, interpolation=[1, 2])], (8, 8), "interpolation"),
        ([ops.RandomCrop((0, 2))], (8, 8), "RandomCrop"),
        ([ops.Cutout((1, 2, 3))], (8, 8), "Cutout"),
    ],
)
def test_operations_that_cannot_be_are_refused_by_name(operations, shape, message):
    with pytest.raises(pyecho.ConfigError, match=message):
        made(np.zeros(shape, np.uint8), operations, 0)
