"""Native operations on the way from an item to the row of a batch, such as these for images.

::

    loader = pyecho.torch.EchoLoader(
        images, 4, batch_size=256,
        ops=[
            ops.RandomResizedCrop(224),
            ops.RandomFlip(axis=1),
            ops.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
            ops.ToCHW(),
        ],
    )

Every use of an item draws its own part and is transformed while it is copied into the batch, in
native threads and without the GIL: echoing before augmentation. Operations stand in this order:
parts and sizes (`RandomCrop` to `Pad`, in any order), `Cutout`, `Normalize`, `Cast`, `ToCHW`. All
are done in one pass over the item, so a list has at most one that resamples, one `Pad`, after it,
and one `Cutout`; and with one that resamples, the axes behind rows and columns stay as they are.
Axes are those of an item, without the batch's; channels are the last.

Random numbers depend on the seed, the epoch, the stream (0 without ``shards=``) and the number of
the use in it, and on the place of the operation in its list; csrc/core/ops/program.hpp has the
formulas. So the output is the same for any number of threads, after a resume, and for any number of
ranks of a ``shards=`` run. Leaves in one key of ``ops={("image", "mask"): [...]}`` share them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from pyecho._core import ConfigError
from pyecho.checked import checked_int

__all__ = [
    "Cast",
    "CenterCrop",
    "Cutout",
    "Normalize",
    "Pad",
    "RandomCrop",
    "RandomFlip",
    "RandomResizedCrop",
    "Resize",
    "ToCHW",
]

Extents = int | Sequence[int]
Interpolation = Literal["bilinear", "nearest"]

ELEMENTS = (
    *("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
    *("float16", "bfloat16", "float32", "float64"),
)
"""Types that can be computed with, in the order of ops::Element, which has one more for others."""


class Plain(NamedTuple):
    """An operation as the native side reads it: see csrc/core/ops/operation.hpp."""

    kind: int
    draws: int = 0
    axes: Sequence[int] = ()
    sizes: Sequence[int] = ()
    numbers: Sequence[float] = ()
    nearest: bool = False
    element: int = 0


@dataclass(frozen=True)
class Operation:
    """What is done to every use of a leaf."""

    _kind: ClassVar[int]  # an ops::Kind

    def plain(self, axes: int, leaf: int) -> Plain:
        """Return the operation for an item of so many axes, the leaf of this number in its key."""
        raise NotImplementedError

    def _axes(self, chosen: Extents | None, default: Sequence[int], axes: int) -> list[int]:
        """Return the numbers of the axes that were chosen, counted from the first."""
        name = type(self).__name__
        found = list(default) if chosen is None else list(_several(chosen))
        if any(not -axes <= axis < axes for axis in found):
            raise ConfigError(f"{name} needs axes {found}, but the item has {axes}")
        found = [axis % axes for axis in found]
        if len(set(found)) < len(found):
            raise ConfigError(f"{name} names an axis twice: {found}")
        return found

    def _image_axes(self, chosen: Extents | None, axes: int) -> list[int]:
        """Return the axes of rows and columns: those before the channels, unless chosen."""
        if chosen is None and axes < 2:
            raise ConfigError(f"{type(self).__name__} needs rows and columns, got {axes} axes")
        before = 2 if axes == 2 else 3
        return self._axes(chosen, (axes - before, axes - before + 1), axes)


def _several(value: Extents) -> tuple[int, ...]:
    found = value if isinstance(value, Iterable) else (value,)
    return tuple(checked_int("an axis or extent", each, -(2**31), 2**62) for each in found)


def _extents(operation: Operation, value: Extents) -> tuple[int, ...]:
    found = _several(value)
    if not found or any(extent < 1 for extent in found):
        name = type(operation).__name__
        raise ConfigError(f"{name} needs extents of at least 1, got {value!r}")
    return found


def _number(operation: Operation, value: Any, least: float, most: float) -> float:
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not least <= found <= most:
        name = type(operation).__name__
        raise ConfigError(f"{name} needs a number from {least:g} to {most:g}, got {value!r}")
    return found


def _interval(operation: Operation, value: Sequence[float], most: float) -> tuple[float, float]:
    try:
        low, high = value
    except (TypeError, ValueError):
        raise ConfigError(f"{type(operation).__name__} needs a pair, got {value!r}") from None
    low = _number(operation, low, math.ulp(0), most)
    return low, _number(operation, high, low, most)


class _Box(Operation):
    """An operation on the first axes, or on those chosen, each with an extent."""

    axes: Extents | None

    def _box(self, extents: tuple[int, ...], axes: int, *numbers: float) -> Plain:
        default = range(len(extents)) if len(extents) <= axes else range(axes)
        found = self._axes(self.axes, default, axes)
        if len(found) != len(extents):
            raise ConfigError(
                f"{type(self).__name__} has {len(extents)} extents for {len(found)} axes {found}"
            )
        return Plain(self._kind, 0, found, extents, numbers)


@dataclass(frozen=True)
class RandomCrop(_Box):
    """A part of `shape` at a random place: of an image, a clip, a volume, a row of tokens.

    Parameters
    ----------
    shape
        Extents of the part, one for each axis; an int means one axis.
    axes
        Axes of the item; None: the first ones. The others stay whole.
    """

    shape: Extents
    axes: Extents | None = None
    _kind: ClassVar[int] = 0

    def plain(self, axes: int, leaf: int) -> Plain:
        """Return the operation as the native side reads it."""
        return self._box(_extents(self, self.shape), axes)


@dataclass(frozen=True)
class CenterCrop(RandomCrop):
    """The part of `shape` in the middle. Parameters as of `RandomCrop`."""

    _kind: ClassVar[int] = 1


@dataclass(frozen=True)
class _Resampling(Operation):
    def _nearest(self, interpolation: Any, leaf: int) -> bool:
        modes = (interpolation,) if isinstance(interpolation, str) else tuple(interpolation)
        mode = modes[leaf] if 1 < len(modes) > leaf else modes[0]
        if mode not in ("bilinear", "nearest") or (len(modes) > 1 and leaf >= len(modes)):
            raise ConfigError(
                f"{type(self).__name__} needs interpolation 'bilinear' or 'nearest', or one of "
                f"them for each leaf, got {interpolation!r}"
            )
        return bool(mode == "nearest")


@dataclass(frozen=True)
class RandomResizedCrop(_Resampling):
    """A part of random area and ratio at a random place, resampled to `size`.

    Draws as torchvision's does.

    Parameters
    ----------
    size
        Rows and columns of the result; an int means a square.
    scale
        Least and most of the item's area that a part has.
    ratio
        Least and most ratio of a part's columns to its rows.
    axes
        Axes of rows and columns, which lie side by side; None: the two before the channels, or both
        of two.
    interpolation
        ``"bilinear"`` with antialiasing, as Pillow and torchvision do, ``"nearest"`` for labels, or
        one for each leaf of the key.
    """

    size: Extents
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    axes: Extents | None = None
    interpolation: Interpolation | tuple[Interpolation, ...] = "bilinear"
    _kind: ClassVar[int] = 2

    def plain(self, axes: int, leaf: int) -> Plain:
        """Return the operation as the native side reads it."""
        size = _extents(self, self.size)
        if len(size) > 2:
            raise ConfigError(f"RandomResizedCrop needs rows and columns, got {self.size!r}")
        numbers = (*_interval(self, self.scale, 1), *_interval(self, self.ratio, math.inf))
        found, nearest = self._image_axes(self.axes, axes), self._nearest(self.interpolation, leaf)
        return Plain(self._kind, 0, found, size * (3 - len(size)), numbers, nearest)


@dataclass(frozen=True)
class Resize(_Resampling):
    """The whole item, or the part cropped before, resampled to `size`.

    Parameters
    ----------
    size
        Rows and columns of the result; an int is the extent of the shorter of them, and the ratio
        stays.
    axes, interpolation
        As in `RandomResizedCrop`.
    """

    size: Extents
    axes: Extents | None = None
    interpolation: Interpolation | tuple[Interpolation, ...] = "bilinear"
    _kind: ClassVar[int] = 3

    def plain(self, axes: int, leaf: int) -> Plain:
        """Return the operation as the native side reads it."""
        size = _extents(self, self.size)
        if len(size) > 2:
            raise ConfigError(f"Resize needs rows and columns, got {self.size!r}")
        found, nearest = self._image_axes(self.axes, axes), self._nearest(self.interpolation, leaf)
        return Plain(self._kind, 0, found, size, (), nearest)


@dataclass(frozen=True)
class RandomFlip(Operation):
    """The item turned around on one axis, with probability `p`. Axis 1 of an image: mirrored."""

    axis: int
    p: float = 0.5
    _kind: ClassVar[int] = 4

    def plain(self, axes: int, leaf: int) -> Plain:
        """Return the operation as the native side reads it."""
        return Plain(
            self._kind, 0, self._axes(self.axis, (), axes), (), (_number(self, self.p, 0, 1),)
        )


@dataclass(frozen=True)
class Pad(_Box):
    """At least the extents `to`, with the item in the middle. Only one, after any resampling.

    Parameters
    ----------
    to
        Least extents; an int means one axis.
    value
        Of the elements around the item, in its units.
    axes
        As in `RandomCrop`.
    """

    to: Extents
    value: float = 0
    axes: Extents | None = None
    _kind: ClassVar[int] = 5

    def plain(self, axes: int, leaf: int) -> Plain:
        """Return the operation as the native side reads it."""
        value = _number(self, self.value, -math.inf, math.inf)
        return self._box(_extents(self, self.to), axes, value)


@dataclass(frozen=True)
class Cutout(Operation):
    """A box of `size` around a random element has one value, as far as it lies inside. Only one.

    Parameters
    ----------
    size
        Extents of the box; an int means as many rows as columns.
    p
        Probability.
    value
        Of the elements in the box, in the item's units.
    axes
        Axes of the extents; None: rows and columns, as in `RandomResizedCrop`.
    """

    size: Extents
    p: float = 1.0
    value: float = 0
    axes: Extents | None = None
    _kind: ClassVar[int] = 6

    def plain(self, axes: int, leaf: int) -> Plain:
        """Return the operation as the native side reads it."""
        size = _extents(self, self.size)
        found = self._image_axes(self.axes, axes)
        size *= len(found) if len(size) == 1 else 1
        if len(size) != len(found):
            raise ConfigError(f"Cutout has {len(size)} extents for {len(found)} axes {found}")
        numbers = (_number(self, self.p, 0, 1), _number(self, self.value, -math.inf, math.inf))
        return Plain(self._kind, 0, found, size, numbers)


@dataclass(frozen=True)
class Normalize(Operation):
    """``(x - mean) / std`` for each channel, in float32.

    Whole numbers are divided by the largest of their type first, so `mean` and `std` are those of
    values from 0 to 1, as torchvision's.
    """

    mean: float | Sequence[float]
    std: float | Sequence[float]
    _kind: ClassVar[int] = 7

    def plain(self, axes: int, leaf: int) -> Plain:
        """Return the operation as the native side reads it."""
        mean, std = (
            list(each) if isinstance(each, Iterable) else [each] for each in (self.mean, self.std)
        )
        if len(mean) != len(std):
            raise ConfigError(f"Normalize has {len(mean)} means and {len(std)} deviations")
        limits = (-math.inf, math.inf), (math.ulp(0), math.inf)
        numbers = [_number(self, each, *limits[0]) for each in mean]
        numbers += [_number(self, each, *limits[1]) for each in std]
        return Plain(self._kind, 0, (), (), numbers)


@dataclass(frozen=True)
class Cast(Operation):
    """Elements of another type: what `numpy.dtype` knows by a number's name, or ``"bfloat16"``."""

    dtype: Any
    _kind: ClassVar[int] = 8

    def plain(self, axes: int, leaf: int) -> Plain:
        """Return the operation as the native side reads it."""
        name = str(self.dtype).removeprefix("torch.")
        if name not in ELEMENTS:
            try:
                name = np.dtype(self.dtype).name
            except TypeError:
                name = ""
        if name not in ELEMENTS:
            known = ", ".join(ELEMENTS)
            raise ConfigError(f"Cast needs one of {known}, got {self.dtype!r}")
        return Plain(self._kind, element=ELEMENTS.index(name))


@dataclass(frozen=True)
class ToCHW(Operation):
    """The last axis, of channels, comes first, as PyTorch's convolutions want it."""

    _kind: ClassVar[int] = 9

    def plain(self, axes: int, leaf: int) -> Plain:
        """Return the operation as the native side reads it."""
        return Plain(self._kind)
