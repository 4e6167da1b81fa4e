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
from pyecho.checked import as_float, checked_int, plain

Extents = int | Sequence[int]
Interpolation = Literal["bilinear", "nearest"]

ELEMENTS = (
    *("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
    *("float16", "bfloat16", "float32", "float64"),
)
"""Types that can be computed with, in the order of ops::Element, which has one more for others."""


class Plain(NamedTuple):
    """An operation as the native side reads it, but the last: see csrc/core/ops/operation.hpp."""

    kind: int
    draws: int = 0
    axes: Sequence[int] = ()
    sizes: Sequence[int] = ()
    numbers: Sequence[float] = ()
    nearest: bool = False
    element: int = 0
    drops: bool = False
    """The row is without its axis, which has one element."""


class Form(NamedTuple):
    """Roles of the parameters of a class of operations."""

    kind: int
    """An ops::Kind."""
    size: str = ""
    """The parameter that has an extent for each axis."""
    is_square: bool = False
    """True if one extent is that of every axis."""
    of_images: bool = False
    """True if its axes are rows and columns, unless others are chosen, and not the first ones."""
    counts: tuple[tuple[str, int], ...] = ()
    """Parameters of numbers that need not be whole, and how many each has; 0: any."""


@dataclass(frozen=True)
class Operation:
    """An operation on every use of a leaf. Those that do the same are equal, and written alike."""

    _form: ClassVar[Form]

    def __post_init__(self) -> None:
        """Have numbers be Python's, several be a tuple, and a tuple of one be that one."""
        for parameter in fields(self):
            value = plain(getattr(self, parameter.name))
            if parameter.name in dict(self._form.counts):
                value = _as_floats(value)
            alone = isinstance(value, tuple) and len(value) == 1
            object.__setattr__(self, parameter.name, value[0] if alone else value)

    def _plain(self, axes: int, names: tuple[str, ...], leaf: int) -> Plain:
        """Return the operation for an item of so many axes, the leaf of this number in its key.

        `names`: the leaves of the key.
        """
        sizes = self._sizes()
        on = self._axes(len(sizes), axes)
        if self._form.is_square and len(sizes) == 1:
            sizes *= len(on)
        numbers = [
            number for name, count in self._form.counts for number in self._numbers(name, count)
        ]
        return Plain(self._form.kind, 0, on, sizes, numbers, self._is_nearest(leaf))

    def _sizes(self) -> tuple[int, ...]:
        """Return the extents, each at least 1."""
        given = getattr(self, self._form.size, ())
        sizes = _ints(given)
        if self._form.size and (not sizes or min(sizes) < 1):
            raise ConfigError(f"{type(self).__name__} needs extents of at least 1, got {given!r}")
        return sizes

    def _axes(self, extents: int, axes: int) -> list[int]:
        """Return the numbers of its axes, counted from the first; rows before columns."""
        chosen = getattr(self, "axis", getattr(self, "axes", None))
        if chosen is not None:
            wanted = _ints(chosen)
        elif self._form.of_images:
            rows = axes - (2 if axes == 2 else 3)
            wanted = rows, rows + 1
        else:
            wanted = tuple(range(extents))
        if any(not -axes <= axis < axes for axis in wanted):
            raise ConfigError(
                f"{type(self).__name__} needs axes {list(wanted)}, but the item has {axes}"
            )
        return [axis % axes for axis in wanted]

    def _numbers(self, name: str, count: int) -> list[float]:
        """Return the number or numbers of a parameter as floats, none of which is NaN."""
        value = getattr(self, name)
        numbers = list(map(as_float, value if isinstance(value, tuple) else (value,)))
        if any(map(math.isnan, numbers)) or len(numbers) != (count or len(numbers)):
            wanted = f"{count} number{'s' * (count > 1)}" if count else "numbers"
            raise ConfigError(f"{type(self).__name__} needs {wanted}, got {value!r}")
        return numbers

    def _is_nearest(self, leaf: int) -> bool:
        """Return True for interpolation by ``"nearest"``, of this leaf if each has its own."""
        given = getattr(self, "interpolation", "bilinear")
        modes = (given,) if isinstance(given, str) else tuple(given)
        mode: Any = modes[0] if len(modes) == 1 else dict(enumerate(modes)).get(leaf)
        if mode not in ("bilinear", "nearest"):
            raise ConfigError(
                f"{type(self).__name__} needs interpolation 'bilinear' or 'nearest', or one of "
                f"them for each leaf, got {given!r}"
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
