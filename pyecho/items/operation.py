"""The base of all operations of `pyecho.ops`, and their form for the native side.

Here stands what only Python can check: kinds of arguments, and axes counted from the end. Bounds
and how operations fit an item and each other are checked in csrc/core/ops/checks.cpp.
"""

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
        for parameter in fields(self):
            value = plain(getattr(self, parameter.name))
            if parameter.name in self._floats:
                value = _as_floats(value)
            alone = isinstance(value, tuple) and len(value) == 1
            object.__setattr__(self, parameter.name, value[0] if alone else value)

    def _plain(self, axes: int, leaf: int) -> Plain:
        """Return the operation for an item of so many axes, the leaf of this number in its key."""
        raise NotImplementedError

    def _axes(self, chosen: Extents | None, default: Iterable[int], axes: int) -> list[int]:
        """Return the numbers of the axes that were chosen, counted from the first."""
        wanted = list(default) if chosen is None else list(_ints(chosen))
        if any(not -axes <= axis < axes for axis in wanted):
            raise ConfigError(f"{type(self).__name__} needs axes {wanted}, but the item has {axes}")
        return [axis % axes for axis in wanted]

    def _image_axes(self, chosen: Extents | None, axes: int) -> list[int]:
        """Return the axes of rows and columns: those before the channels, unless chosen."""
        before = 2 if axes == 2 else 3
        return self._axes(chosen, (axes - before, axes - before + 1), axes)

    def _extents(self, value: Extents) -> tuple[int, ...]:
        """Return extents, each at least 1."""
        extents = _ints(value)
        if not extents or min(extents) < 1:
            raise ConfigError(f"{type(self).__name__} needs extents of at least 1, got {value!r}")
        return extents

    def _numbers(self, value: Any, count: int | None = None) -> list[float]:
        """Return one number or several as floats, `count` of them; none is NaN."""
        given = list(value) if isinstance(value, Iterable) else [value]
        try:
            numbers = list(map(float, given))
        except (TypeError, ValueError, OverflowError):
            numbers = [math.nan]
        if any(map(math.isnan, numbers)) or len(numbers) != (count or len(numbers)):
            wanted = "numbers" if count is None else f"{count} number{'s' * (count > 1)}"
            raise ConfigError(f"{type(self).__name__} needs {wanted}, got {value!r}")
        return numbers

    def _nearest(self, interpolation: Any, leaf: int) -> bool:
        """Return True for ``"nearest"``, of a leaf with this number if each has its own."""
        modes = (interpolation,) if isinstance(interpolation, str) else tuple(interpolation)
        mode = modes[leaf] if 1 < len(modes) > leaf else modes[0]
        if mode not in ("bilinear", "nearest") or (len(modes) > 1 and leaf >= len(modes)):
            raise ConfigError(
                f"{type(self).__name__} needs interpolation 'bilinear' or 'nearest', or one of "
                f"them for each leaf, got {interpolation!r}"
            )
        return bool(mode == "nearest")


def _as_floats(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_as_floats, value))
    try:
        return float(value) if isinstance(value, int) else value
    except OverflowError:
        return value


def _ints(value: Extents) -> tuple[int, ...]:
    """Return axes or extents as a tuple."""
    given = value if isinstance(value, Iterable) else (value,)
    return tuple(checked_int("an axis or extent", number, -(2**31), 2**62) for number in given)
