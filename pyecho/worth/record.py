"""Losses observed: sums for each number of a use, in bins of consecutive batches."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

USES = 16
"""Columns: uses 0 to 14, and all later ones together."""
BINS = 512
"""Most bins. When all are full, each two become one. Also most validation losses."""
MOST_LOSS = 1e100
"""Larger losses have squares that do not add up; they count as not finite."""
SAMPLE = 256
"""So many of the first fresh items are remembered: the next pass has begun once one comes again."""


class Record:
    """Uses, losses and squares of fresh losses in bins, and validation losses. Not thread-safe."""

    def __init__(self) -> None:
        self.width = 1  # batches in a bin
        self.batches = 0
        self.counts = np.zeros((BINS, USES))
        self.sums = np.zeros((BINS, USES))
        self.squares = np.zeros(BINS)  # of losses on fresh uses
        self.later: int | None = None  # batches before the first one of a later pass
        self.first: set[int] = set()  # source indexes of the first fresh uses
        self.validations: list[tuple[NDArray[np.float64], float]] = []  # uses before, loss
        self.validated = 0  # validation losses so far
        self.every = 1  # of them is kept, a power of two

    @property
    def bins(self) -> int:
        """Number of bins that have begun."""
        return -(-self.batches // self.width)

    @property
    def seen(self) -> NDArray[np.float64]:
        """Uses so far, by number."""
        return np.asarray(self.counts.sum(0))

    def add(
        self, losses: NDArray[np.float64], uses: NDArray[Any], items: NDArray[np.int64]
    ) -> None:
        """Add a batch. Losses that are not finite are left out, with their uses."""
        good = np.abs(losses) < MOST_LOSS  # False for NaN
        if not good.all():
            losses, uses, items = losses[good], uses[good], items[good]
        if self.batches == BINS * self.width:
            self._halve()
        at = self.batches // self.width
        self._note(items[uses == 0])
        uses = np.minimum(uses, USES - 1)
        self.counts[at] += np.bincount(uses, minlength=USES)
        self.sums[at] += np.bincount(uses, losses, USES)
        fresh = losses[uses == 0]
        self.squares[at] += fresh @ fresh
        self.batches += 1

    def validate(self, loss: float) -> None:
        """Add a validation loss if it is finite. When there are too many, every second one goes."""
        if not abs(loss) < MOST_LOSS:  # also NaN
            return
        if len(self.validations) == BINS:
            self._thin()
        if self.validated % self.every == 0:
            self.validations.append((self.seen, loss))
        self.validated += 1

    def merge(self, other: Record) -> None:
        """Add what another rank saw in the same batches."""
        other = other.copy()
        while self.width != other.width:
            (self if self.width < other.width else other)._halve()
        while self.every != other.every:
            (self if self.every < other.every else other)._thin()
        self.counts += other.counts
        self.sums += other.sums
        self.squares += other.squares
        self.batches = max(self.batches, other.batches)
        later = [each for each in (self.later, other.later) if each is not None]
        self.later = min(later, default=None)
        self.validated = min(self.validated, other.validated)
        self.validations = [
            (uses + more, (loss + again) / 2)
            for (uses, loss), (more, again) in zip(
                self.validations, other.validations, strict=False
            )
        ]

    def copy(self) -> Record:
        """Return a record that changes apart from this one."""
        record = Record()
        record.load(self.state())
        return record

    def state(self) -> dict[str, Any]:
        """Return numbers and lists of them."""
        return {
            "width": self.width,
            "batches": self.batches,
            "counts": self.counts[: self.bins].tolist(),
            "sums": self.sums[: self.bins].tolist(),
            "squares": self.squares[: self.bins].tolist(),
            "later": -1 if self.later is None else self.later,
            "first": sorted(self.first),
            "validation_uses": [uses.tolist() for uses, _ in self.validations],
            "validation_losses": [loss for _, loss in self.validations],
            "validated": self.validated,
            "every": self.every,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Become what `state` says. Raises ValueError, TypeError, LookupError, unchanged."""
        width, batches, later, validated, every = (
            int(state[name]) for name in ("width", "batches", "later", "validated", "every")
        )
        bins, losses = _groups(batches, width), _groups(validated, every)
        if not -1 <= later <= batches:
            raise ValueError(f"a later pass after {later} of {batches} batches")
        shapes = {"counts": (bins, USES), "sums": (bins, USES), "squares": (bins,)}
        shapes |= {"validation_uses": (losses, USES), "validation_losses": (losses,)}
        arrays = {
            name: np.asarray(state[name], np.float64).reshape(shape)
            for name, shape in shapes.items()
        }
        for name, array in arrays.items():
            least = -np.inf if name in ("sums", "validation_losses") else 0
            if not (np.isfinite(array) & (array >= least)).all():
                raise ValueError(f"{name} with numbers that are negative or not finite")
        first = set(np.asarray(state["first"], np.int64).ravel().tolist())
        self.__init__()  # type: ignore[misc]
        self.width, self.batches, self.first = width, batches, first
        self.later = None if later < 0 else later
        for name in ("counts", "sums", "squares"):
            getattr(self, name)[:bins] = arrays[name]
        uses, each_loss = arrays["validation_uses"], arrays["validation_losses"].tolist()
        self.validations = list(zip(uses, each_loss, strict=True))
        self.validated, self.every = validated, every

    def _note(self, fresh: NDArray[np.int64]) -> None:
        """Find out whether a later pass has begun."""
        if self.later is not None:
            return
        indexes = fresh.tolist()
        if not self.first.isdisjoint(indexes):
            self.later = self.batches
        elif len(self.first) < SAMPLE:
            self.first.update(indexes)

    def _thin(self) -> None:
        self.validations = self.validations[::2]
        self.every *= 2

    def _halve(self) -> None:
        for name in ("counts", "sums", "squares"):
            array = getattr(self, name)
            array[: BINS // 2] = array[::2] + array[1::2]
            array[BINS // 2 :] = 0
        self.width *= 2


def _groups(count: int, size: int) -> int:
    """Return the number of groups of this size. Raises ValueError if no record has them."""
    if not (0 <= count < 2**63 and 0 < size < 2**63 and count <= BINS * size) or size & (size - 1):
        raise ValueError(f"{count} batches or validation losses in groups of {size}")
    return -(-count // size)
