"""An echo factor that follows the speed of the source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pyecho._core import ConfigError
from pyecho.checked import checked_int
from pyecho.state.loaded import Loaded

Log = Mapping[int | tuple[int, int, int], Any]
"""Numbers of items (and ends of passes) that were taken before each batch: arrays of whole numbers,
or lists. The key is the first epoch of passes that flow into each other; of a later segment of
theirs (csrc/core/plan/segments.hpp) it is that epoch, the pass in which the segment begins, and the
joints in that pass so far."""


class Adaptive:
    """As many uses of each item as the source's speed makes necessary.

    Pass it as the factor of a loader or buffer. Before each batch the pool takes every item that
    has arrived. While the source keeps up, each item has `min` uses; when it does not, the pool
    repeats its items, evenly, up to `max` uses, and only then the consumer waits. In a full pool
    the item with the most uses leaves for a new one, the oldest among equals. At the end of the
    source each item still gets its `min` uses.

    The output depends on timing. ``loader.stats().log`` says what was decided, and ``replay(log)``
    gives the same output again, bit for bit.

    The length of an epoch is not known beforehand, so ``len(loader)`` needs `steps_per_epoch`.
    `shuffle_buffer` must hold a batch.

    With a ``group=`` each rank follows its own source, and `steps_per_epoch` is needed.

    Parameters
    ----------
    max, min
        Most and least uses of an item.
    max_age
        Batches after which an item leaves the pool, once it has had its least uses. None: no bound.
    replay
        See `replay`.

    Raises
    ------
    ConfigError
        If an argument is wrong.
    """

    def __init__(
        self, max: int, min: int = 1, *, max_age: int | None = None, replay: Log | None = None
    ) -> None:
        self.max = checked_int("max", max, 1, 2**16)
        self.min = checked_int("min", min, 1, self.max)
        self.max_age = None if max_age is None else checked_int("max_age", max_age, 1, 2**62)
        self.log = {} if replay is None else _checked(replay)
        """Decisions to take again."""

    def replay(self, log: Log) -> Adaptive:
        """Return a factor that decides as the log says, and by itself once that is at its end.

        Needs the source, options, seed and epochs of the run that made the log; a log that cannot
        be that of this run raises `CheckpointError`.
        """
        return Adaptive(self.max, self.min, max_age=self.max_age, replay=log)

    def __repr__(self) -> str:
        """Show how it was made, but for the log."""
        age = "" if self.max_age is None else f", max_age={self.max_age}"
        return f"Adaptive({self.max}, min={self.min}{age}{', replay=...' if self.log else ''})"


def _checked(log: Log) -> dict[int, Any]:
    reason = f"it is a {type(log).__name__}"
    try:
        if isinstance(log, Mapping):
            return {
                _checked_key(key): Loaded(column, f"log[{key}]")
                .numbers(int, 0, 2**32 - 1, None)
                .astype(np.uint32)
                for key, column in log.items()
            }
    except ValueError as error:  # both of pyecho's errors are
        reason = str(error)
    raise ConfigError(
        "replay needs the log of an earlier run, loader.stats().log: a dict of epochs, or epochs "
        f"and places of segments, and arrays of whole numbers; {reason}"
    )


def _checked_key(key: Any) -> Any:
    if isinstance(key, tuple) and len(key) == 3:
        return tuple(checked_int("epoch", number, 0, 2**64 - 1) for number in key)
    return checked_int("epoch", key, 0, 2**64 - 1)
