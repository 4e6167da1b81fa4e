"""A reference of `pyecho.ops` in plain NumPy and Python: see csrc/core/ops/program.hpp."""

import math
from functools import partial

import numpy as np
from reference_random import GOLDEN_GAMMA, MASK, mix64, stream_key, unit_at

from pyecho import _core, ops

WINDOW_STREAM = 3


def key_of_use(seed, epoch, use):
    return mix64((stream_key(seed, epoch, WINDOW_STREAM) + (use + 1) * GOLDEN_GAMMA) & MASK)


def draws_of(key, number):
    """Return a function that gives random number i of the operation of this number."""
    return partial(unit_at, mix64((key + (number + 1) * GOLDEN_GAMMA) & MASK))


def transformed(item, operations, key, *, leaf=0, first=0):
    """Return the row that the use `key` makes of an item, by operations numbered from `first`."""
    for number, operation in enumerate(operations, first):
        item = STEPS[type(operation)](item, operation, draws_of(key, number), leaf)
    return np.asarray(item, order="C")


def window_of(item, window, item_key, ordinal, number=0):
    """Return what a use of this ordinal takes by the window, the operation of this number."""
    extent = item.shape[window.axis]
    first, last = (each + extent if each < 0 else each for each in window.anchors)
    anchors = range(first, last + 1, window.stride)
    seed = (item_key + (number + 1) * GOLDEN_GAMMA) & MASK
    again, place = divmod(ordinal, len(anchors))
    [place] = _core.permuted(len(anchors), seed, again, place, place + 1, 1)
    wanted = anchors[place] + np.array(window.offsets)
    return item.take(np.clip(wanted, 0, extent - 1), window.axis)


def _pairs(operation, extents, ndim):
    extents = extents if isinstance(extents, tuple | list) else (extents,)
    axes = operation.axes
    axes = range(len(extents)) if axes is None else axes if isinstance(axes, tuple) else (axes,)
    return [(axis % ndim, extent) for axis, extent in zip(axes, extents, strict=True)]


def _part(item, begins):
    cut = [slice(None)] * item.ndim
    for axis, begin, extent in begins:
        cut[axis] = slice(begin, begin + extent)
    return item[tuple(cut)]


def random_crop(item, op, draw, leaf):
    pairs = _pairs(op, op.shape, item.ndim)
    return _part(
        item,
        [
            (axis, math.floor(draw(i) * (item.shape[axis] - extent + 1)), extent)
            for i, (axis, extent) in enumerate(pairs)
        ],
    )


def center_crop(item, op, draw, leaf):
    pairs = _pairs(op, op.shape, item.ndim)
    return _part(item, [(axis, (item.shape[axis] - each) // 2, each) for axis, each in pairs])


def flip(item, op, draw, leaf):
    return np.flip(item, op.axis) if draw(0) < op.p else item


def pad(item, op, draw, leaf):
    widths = [(0, 0)] * item.ndim
    for axis, extent in _pairs(op, op.to, item.ndim):
        more = max(0, extent - item.shape[axis])
        widths[axis] = (more // 2, more - more // 2)
    return np.pad(item, widths, constant_values=np.array(op.value).astype(item.dtype))


def image_axes(op, ndim):
    if op.axes is not None:
        return tuple(axis % ndim for axis in op.axes)
    before = 2 if ndim == 2 else 3
    return ndim - before, ndim - before + 1


def cutout(item, op, draw, leaf):
    if draw(0) >= op.p:
        return item
    axes = image_axes(op, item.ndim)
    sizes = (op.size,) * len(axes) if isinstance(op.size, int) else op.size
    cut = [slice(None)] * item.ndim
    for i, (axis, size) in enumerate(zip(axes, sizes, strict=True)):
        begin = math.floor(draw(i + 1) * item.shape[axis]) - size // 2
        cut[axis] = slice(max(0, begin), max(0, begin + size))
    item = item.copy()
    item[tuple(cut)] = op.value
    return item


def normalize(item, op, draw, leaf):
    unit = np.iinfo(item.dtype).max if item.dtype.kind in "iu" else 1
    mean, std = np.asarray(op.mean, np.float64), np.asarray(op.std, np.float64)
    scale, shift = (1 / (unit * std)).astype(np.float32), (-mean / std).astype(np.float32)
    return item.astype(np.float32) * scale + shift


def cast(item, op, draw, leaf):
    to = np.dtype(op.dtype)
    if item.dtype.kind == "f" and to.kind in "iu":
        limits = np.iinfo(to)
        return np.clip(np.rint(item.astype(np.float64)), limits.min, limits.max).astype(to)
    return item.astype(to)


def to_chw(item, op, draw, leaf):
    return np.moveaxis(item, -1, 0)


def resampled(item, axes, size, nearest):
    """Return the item resampled on both axes, in float64 and not rounded."""
    for axis, extent in zip(axes, size, strict=True):
        weights = _nearest(item.shape[axis], extent) if nearest else _taps(item.shape[axis], extent)
        item = np.moveaxis(np.tensordot(weights, item.astype(np.float64), (1, axis)), 0, axis)
    return item


def _nearest(have, want):
    weights, scale = np.zeros((want, have)), have / want
    weights[range(want), [min(have - 1, math.floor((i + 0.5) * scale)) for i in range(want)]] = 1
    return weights


def _taps(have, want):
    scale = have / want
    reach = max(1.0, scale)
    middles = (np.arange(want) + 0.5) * scale - 0.5
    weights = np.clip(1 - np.abs(np.arange(have) - middles[:, None]) / reach, 0, None)
    return weights / weights.sum(axis=1, keepdims=True)


def drawn_part(op, draw, rows, columns):
    """Return where RandomResizedCrop cuts: first row, first column, rows, columns."""
    (low, high), (least, most) = op.scale, op.ratio
    for attempt in range(10):
        u = [draw(4 * attempt + i) for i in range(4)]
        area = rows * columns * (low + u[0] * (high - low))
        ratio = math.exp(math.log(least) + u[1] * (math.log(most) - math.log(least)))
        width, height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < width <= columns and 0 < height <= rows:
            return (
                math.floor(u[2] * (rows - height + 1)),
                math.floor(u[3] * (columns - width + 1)),
                height,
                width,
            )
    height, width = rows, columns
    if columns / rows < least:
        height = round(columns / least)
    elif columns / rows > most:
        width = round(rows * most)
    height, width = max(1, min(rows, height)), max(1, min(columns, width))
    return (rows - height) // 2, (columns - width) // 2, height, width


def _modes(op):
    return (op.interpolation,) if isinstance(op.interpolation, str) else op.interpolation


def _resampled(item, op, axes, size, leaf):
    modes = _modes(op)
    mode = modes[leaf if len(modes) > 1 else 0]
    found = resampled(item, axes, size, mode == "nearest")
    if item.dtype.kind in "iu":
        found = np.rint(found)
    return found.astype(item.dtype)


def resized_crop(item, op, draw, leaf):
    axes = image_axes(op, item.ndim)
    size = (op.size, op.size) if isinstance(op.size, int) else op.size
    row, column, rows, columns = drawn_part(op, draw, *(item.shape[axis] for axis in axes))
    part = _part(item, [(axes[0], row, rows), (axes[1], column, columns)])
    return _resampled(part, op, axes, size, leaf)


def resize(item, op, draw, leaf):
    axes = image_axes(op, item.ndim)
    rows, columns = (item.shape[axis] for axis in axes)
    size = op.size
    if isinstance(size, int):
        longer = max(rows, columns) * size // min(rows, columns)
        size = (size, longer) if rows <= columns else (longer, size)
    return _resampled(item, op, axes, size, leaf)


STEPS = {
    ops.RandomCrop: random_crop,
    ops.CenterCrop: center_crop,
    ops.RandomResizedCrop: resized_crop,
    ops.Resize: resize,
    ops.RandomFlip: flip,
    ops.Pad: pad,
    ops.Cutout: cutout,
    ops.Normalize: normalize,
    ops.Cast: cast,
    ops.ToCHW: to_chw,
}
