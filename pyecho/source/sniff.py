"""Recognises kinds of objects, and asks them for lengths and epochs."""

from __future__ import annotations

import sys
from typing import Any

from pyecho._core import ConfigError

MOST = 2**62  # of anything that is counted

EXPORTS = ("__arrow_c_stream__", "__arrow_c_array__")
"""Methods that export Arrow data: as a stream, or, where there is none, a single array."""

STREAMS = ("to_reader", "scanner", "to_batches", "iter_batches")
"""Methods that make an Arrow stream, of what cannot be iterated: pyarrow's datasets and files."""


def tell_epoch(given: Any, epoch: int) -> None:
    """Call ``set_epoch(epoch)`` of an object and of its parts, see `Source.set_epoch`."""
    targets = [given]
    if not getattr(type(given), "_tells_epochs", False):  # a loader may be passes ahead
        targets.append(getattr(given, "sampler", None))
        sampler = getattr(given, "batch_sampler", None)
        while sampler is not None and len(targets) < 8:  # Accelerate puts one into another
            targets += [sampler, getattr(sampler, "sampler", None)]
            sampler = getattr(sampler, "batch_sampler", None)
        targets.append(getattr(given, "dataset", None))
    for target in {id(target): target for target in targets}.values():
        set_epoch = getattr(target, "set_epoch", None)
        if callable(set_epoch):
            set_epoch(epoch)


def has_special(given: Any, name: str) -> bool:
    """Return True if Python finds the special method `name` of `given`."""
    return getattr(type(given), name, None) is not None


def is_arrow(given: Any) -> bool:
    """Return True if a source is read as an Arrow stream or array.

    Not a DataFrame of pandas: its index would be one column more, and each NaN a null.
    """
    if any(has_special(given, name) for name in EXPORTS):
        return not has_special(given, "iloc")
    return not any(has_special(given, name) for name in ("__iter__", "__getitem__")) and any(
        callable(getattr(type(given), name, None)) for name in STREAMS
    )


def is_record_batch(item: Any) -> bool:
    """Return True for a record batch or table of pyarrow."""
    pyarrow = sys.modules.get("pyarrow")
    return pyarrow is not None and isinstance(item, pyarrow.RecordBatch | pyarrow.Table)


def length_of(given: Any) -> int | None:
    """Return ``len(given)``, or None if it has none. Raises `ConfigError` if it is too large."""
    try:
        length = len(given)
    except (TypeError, NotImplementedError):
        return None
    except OverflowError:
        length = MOST + 1
    if length > MOST:
        raise ConfigError(
            f"the length of {type(given).__name__} is more than the {MOST} items that are counted; "
            "a source without end needs no len(), and steps_per_epoch="
        )
    return length
