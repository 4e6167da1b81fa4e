"""The base of all operations of `pyecho.ops`, and their form for the native side."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, NamedTuple

from pyecho._core import ConfigError
from pyecho.checked import checked_int, plain

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
    """An operation on every use of a leaf. Those that do the same are equal, and written alike."""

    _kind: ClassVar[int]  # an ops::Kind
    _floats: ClassVar[tuple[str, ...]] = ()  # parameters that need not be whole numbers

    def __post_init__(self) -> None:
        """Have numbers be Python's, several be a tuple, and a tuple of one be that one."""
        for each in fields(self):
            value = plain(getattr(self, each.name))
            if each.name in self._floats:
                value = _as_floats(value)
            alone = isinstance(value, tuple) and len(value) == 1
            object.__setattr__(self, each.name, value[0] if alone else value)

    def _plain(self, axes: int, leaf: int) -> Plain:
        """Return the operation for an item of so many axes, the leaf of this number in its key."""
        raise NotImplementedError

    def _axes(self, chosen: Extents | None, default: Sequence[int], axes: int) -> list[int]:
        """Return the numbers of the axes that were chosen, counted from the first."""
        name = type(self).__name__
        found = list(default) if chosen is None else list(several(chosen))
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


def _as_floats(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_as_floats, value))
    try:
        return float(value) if isinstance(value, int) else value
    except OverflowError:
        return value


def several(value: Extents) -> tuple[int, ...]:
    """Return axes or extents as a tuple."""
    found = value if isinstance(value, Iterable) else (value,)
    return tuple(checked_int("an axis or extent", each, -(2**31), 2**62) for each in found)


def extents_of(operation: Operation, value: Extents) -> tuple[int, ...]:
    """Return extents, each at least 1; `ConfigError` names the operation, as in what follows."""
    found = several(value)
    if not found or any(extent < 1 for extent in found):
        name = type(operation).__name__
        raise ConfigError(f"{name} needs extents of at least 1, got {value!r}")
    return found


def number_of(operation: Operation, value: Any, least: float, most: float) -> float:
    """Return a number within bounds."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not least <= found <= most:
        name = type(operation).__name__
        raise ConfigError(f"{name} needs a number from {least:g} to {most:g}, got {value!r}")
    return found


def interval_of(operation: Operation, value: Sequence[float], most: float) -> tuple[float, float]:
    """Return two numbers, the first above 0, the second not below the first."""
    try:
        low, high = value
    except (TypeError, ValueError):
        raise ConfigError(f"{type(operation).__name__} needs a pair, got {value!r}") from None
    low = number_of(operation, low, math.ulp(0), most)
    return low, number_of(operation, high, low, most)


class Box(Operation):
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
class Resampling(Operation):
    """An operation that computes elements between those of the item."""

    def _rows_and_columns(self, size: Extents) -> tuple[int, ...]:
        extents = extents_of(self, size)
        if len(extents) > 2:
            raise ConfigError(f"{type(self).__name__} needs rows and columns, got {size!r}")
        return extents

    def _nearest(self, interpolation: Any, leaf: int) -> bool:
        modes = (interpolation,) if isinstance(interpolation, str) else tuple(interpolation)
        mode = modes[leaf] if 1 < len(modes) > leaf else modes[0]
        if mode not in ("bilinear", "nearest") or (len(modes) > 1 and leaf >= len(modes)):
            raise ConfigError(
                f"{type(self).__name__} needs interpolation 'bilinear' or 'nearest', or one of "
                f"them for each leaf, got {interpolation!r}"
            )
        return bool(mode == "nearest")
