"""Checks of numbers that a caller passes."""

from __future__ import annotations

import contextlib
import math
import operator
from typing import Any

import numpy as np

from pyecho._core import ConfigError

MAX_USES = 2**32 - 1


def checked_int(name: str, value: Any, minimum: int, maximum: int) -> int:
    """Return `value` as an int within bounds, or raise `ConfigError`."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool | np.bool_):
        raise ConfigError(f"{name} must be an int, got {value!r}")
    if not minimum <= number <= maximum:
        raise ConfigError(f"{name} must be at least {minimum} and at most {maximum}, got {number}")
    return number


def checked_factor(value: Any) -> float:
    """Return the echo factor as a float >= 1, or raise `ConfigError`."""
    number = math.nan
    if not isinstance(value, bool | str | bytes | bytearray):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            number = float(value)
    if not math.isfinite(number) or number < 1 or number >= MAX_USES:
        raise ConfigError(
            f"factor must be a number of at least 1 (1 means no echoing) and below {MAX_USES}, "
            f"got {value!r}"
        )
    return number
