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
`Window`, parts and sizes (`RandomCrop` to `Pad`, in any order), `Cutout`, `Normalize`, `Cast`,
`ToCHW`. All
are done in one pass over the item, so a list has at most one that resamples, one `Pad`, after it,
and one `Cutout`; and with one that resamples, the axes behind rows and columns stay as they are.
Axes are those of an item, without the batch's; channels are the last.

Random numbers depend on the seed, the epoch, the stream (0 without ``shards=``) and the number of
the use in it, and on the place of the operation in all lists; csrc/core/ops/program.hpp has the
formulas. So the output is the same for any number of threads, after a resume, and for any number of
ranks of a ``shards=`` run. Leaves in one key of ``ops={("image", "mask"): [...]}`` share them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyecho._core import ConfigError
from pyecho.checked import checked_int
from pyecho.items.operation import ELEMENTS, Extents, Form, Interpolation, Operation, Plain

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
    "Window",
]


MOST_OFFSETS = 2**20


def __dir__() -> list[str]:
    return __all__  # what completion shows


@dataclass(frozen=True)
class Window(Operation):
    """The elements at some offsets from a random anchor: a clip, an observation and its actions.

    ::

        window = ops.Window({"image": [-1, 0], "action": range(50)})
        loader = pyecho.EchoLoader(
            chunks, 8, batch_size=64,
            ops={("image", "action"): [window], "image": [ops.RandomResizedCrop(224)]},
        )

    Every use has one anchor for all leaves of its key, which have equal extents on the axis; where
    examples differ in size, the first of the leaves in an example says how many anchors it has. The
    uses of an item take its anchors in a random order, each once before any again; so a factor of
    as many as there are anchors shows each window once an epoch. Offsets beyond the item repeat its
    first or last element; to leave such windows out, bound the anchors. Only one, before all other
    operations on the leaf; its axis is neither resampled nor that of channels.

    Parameters
    ----------
    offsets
        Whole numbers, also negative ones, in the order of the row: those of the one leaf, or a dict
        of them by the names of all leaves of the key. One number instead of several: that element,
        without the axis.
    axis
        Of the item.
    anchors
        The first and the last anchor; negative ones count from the end of the axis.
    stride
        From one anchor to the next.
    """

    offsets: int | Sequence[int] | Mapping[str, int | Sequence[int]]
    axis: int = 0
    anchors: tuple[int, int] = (0, -1)
    stride: int = 1
    _form = Form(0)

    def __post_init__(self) -> None:
        """Have offsets be tuples, by names in their order."""
        given = self.offsets
        if isinstance(given, Mapping):
            own: Any = {str(name): _offsets(given[name]) for name in sorted(given, key=str)}
        else:
            own = _offsets(given)
        object.__setattr__(self, "offsets", own)
        object.__setattr__(self, "anchors", _whole("anchors", self.anchors))
        object.__setattr__(self, "stride", *_whole("stride", [self.stride]))
        if len(self.anchors) != 2:
            raise ConfigError(
                f"Window needs anchors as (first, last), got {self.anchors}; the default is (0, -1)"
            )

    def __hash__(self) -> int:
        """Return the hash of what is equal: offsets may be a dict."""
        offsets = self.offsets
        plain = tuple(offsets.items()) if isinstance(offsets, Mapping) else offsets
        return hash((plain, self.axis, self.anchors, self.stride))

    def _plain(self, axes: int, names: tuple[str, ...], leaf: int) -> Plain:
        offsets = self.offsets
        if isinstance(offsets, Mapping):
            if set(offsets) != set(names):
                raise ConfigError(
                    f"Window has offsets of {list(offsets)}, and its key of ops names "
                    f"{list(names)}; let ops have them under a key of the same names"
                )
            offsets = offsets[names[leaf]]
        elif len(names) > 1:
            raise ConfigError(
                f"Window needs offsets for each of {list(names)}, a dict by their names, got "
                f"{offsets}"
            )
        several = [offsets] if isinstance(offsets, int) else offsets
        numbers = [*self.anchors, self.stride, *several]
        drops = several is not offsets
        return Plain(self._form.kind, 0, self._axes(1, axes), (), numbers, drops=drops)


def _offsets(given: Any) -> int | tuple[int, ...]:
    """Return one number, or several, as Python's."""
    if _is_sequence(given):
        return _whole("offsets", given)
    return _whole("offsets", [given])[0]


def _is_sequence(given: Any) -> bool:
    return isinstance(given, Iterable) and getattr(given, "ndim", 1) > 0  # an array of one number


def _whole(what: str, given: Any) -> tuple[int, ...]:
    """Return whole numbers as Python's."""
    if not _is_sequence(given):
        raise ConfigError(f"Window needs {what} as a sequence of whole numbers, got {given!r}")
    if not 0 < (count := len(given) if isinstance(given, Sized) else 1) <= MOST_OFFSETS:
        raise ConfigError(f"Window needs from 1 to {MOST_OFFSETS:,} {what}, got {count:,}")
    return tuple(checked_int(f"an element of {what}", each, -(2**40), 2**40) for each in given)


@dataclass(frozen=True)
class RandomCrop(Operation):
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
    _form = Form(1, "shape")


@dataclass(frozen=True)
class CenterCrop(RandomCrop):
    """The part of `shape` in the middle. Parameters as of `RandomCrop`."""

    _form = Form(2, "shape")


@dataclass(frozen=True)
class RandomResizedCrop(Operation):
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
    _form = Form(3, "size", is_square=True, of_images=True, counts=(("scale", 2), ("ratio", 2)))


@dataclass(frozen=True)
class Resize(Operation):
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
    _form = Form(4, "size", of_images=True)


@dataclass(frozen=True)
class RandomFlip(Operation):
    """The item turned around on one axis, with probability `p`. Axis 1 of an image: mirrored."""

    axis: int
    p: float = 0.5
    _form = Form(5, counts=(("p", 1),))


@dataclass(frozen=True)
class Pad(Operation):
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
    _form = Form(6, "to", counts=(("value", 1),))


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
    _form = Form(7, "size", is_square=True, of_images=True, counts=(("p", 1), ("value", 1)))


@dataclass(frozen=True)
class Normalize(Operation):
    """``(x - mean) / std`` for each channel, in float32.

    Whole numbers are divided by the largest of their type first, so `mean` and `std` are those of
    values from 0 to 1, as torchvision's.
    """

    mean: float | Sequence[float]
    std: float | Sequence[float]
    _form = Form(8, counts=(("mean", 0), ("std", 0)))

    def _plain(self, axes: int, names: tuple[str, ...], leaf: int) -> Plain:
        mean, std = self._numbers("mean", 0), self._numbers("std", 0)
        if len(mean) != len(std) or min(std, default=1) < 0:
            raise ConfigError(
                "Normalize needs a mean and a standard deviation above 0 for each channel, got "
                f"{self.mean} and {self.std}"
            )
        return super()._plain(axes, names, leaf)


@dataclass(frozen=True)
class Cast(Operation):
    """Elements of another type: what `numpy.dtype` knows by a number's name, or ``"bfloat16"``."""

    dtype: Any
    _form = Form(9)

    def __post_init__(self) -> None:
        """Have the dtype be its name."""
        name = str(self.dtype).removeprefix("torch.")
        if name not in ELEMENTS:
            try:
                name = np.dtype(self.dtype).name
            except TypeError:
                return
        object.__setattr__(self, "dtype", name)

    def _plain(self, axes: int, names: tuple[str, ...], leaf: int) -> Plain:
        if str(self.dtype) not in ELEMENTS:
            known = ", ".join(ELEMENTS)
            raise ConfigError(f"Cast needs one of {known}, got {self.dtype!r}")
        return Plain(self._form.kind, element=ELEMENTS.index(self.dtype))


@dataclass(frozen=True)
class ToCHW(Operation):
    """The last axis, of channels, comes first, as PyTorch's convolutions want it.

    Items have at least three axes.
    """

    _form = Form(10)
