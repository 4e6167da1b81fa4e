"""Checks of arguments, shared by the loaders and the buffer."""

from __future__ import annotations

import contextlib
import math
import operator
import os
from typing import Any

from pyecho._core import ConfigError

MAX_CAPACITY = 2**30
MAX_USES = 2**32 - 1


def checked_int(name: str, value: Any, minimum: int, maximum: int | None = None) -> int:
    """Return `value` as an int within bounds, or raise `ConfigError`."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise ConfigError(f"{name} must be an int, got {value!r}")
    if number < minimum or (maximum is not None and number > maximum):
        most = "" if maximum is None else f" and at most {maximum}"
        raise ConfigError(f"{name} must be at least {minimum}{most}, got {number}")
    return number


def checked_factor(value: Any) -> float:
    """Return the echo factor as a float >= 1, or raise `ConfigError`."""
    number = math.nan
    if not isinstance(value, bool | str | bytes | bytearray):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            number = float(value)
    if not math.isfinite(number) or number < 1:
        raise ConfigError(
            f"factor must be a finite number of at least 1 (1 means no echoing), got {value!r}"
        )
    return number


def checked_capacity(name: str, value: Any, factor: float, minimum: int) -> int:
    """Return how many items the pool holds; their uses are counted in 32 bits."""
    capacity = checked_int(name, value, minimum, MAX_CAPACITY)
    if max(capacity, 1) * math.ceil(factor) >= MAX_USES:
        raise ConfigError(
            f"{name} times factor must stay below {MAX_USES}, got {capacity} * {factor:g}"
        )
    return capacity


def checked_seed(value: Any) -> int:
    """Return a seed of 64 bits."""
    return checked_int("seed", value, 0, 2**64 - 1)


def checked_unique(batch_size: int, capacity: int, name: str) -> None:
    """Raise `ConfigError` unless a batch can be filled without repeating an item."""
    if capacity < batch_size:
        raise ConfigError(
            f"unique_in_batch needs a pool of at least batch_size = {batch_size} items, "
            f"but {name} = {capacity}; raise {name}"
        )


def available_cores() -> int:
    """Return the number of processor cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def checked_threads(value: Any) -> int:
    """Return the number of gather workers; None means all cores but one, from 1 to 4.

    The source and the consumer need a core as well: on two cores, a second worker makes small rows
    slower.
    """
    if value is None:
        return max(1, min(4, available_cores() - 1))
    return checked_int("threads", value, 1, 256)
