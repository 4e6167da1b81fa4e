"""Losses observed: sums for each number of a use, in bins of batches, and what they tell."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyecho.checked import MOST_COUNTED
from pyecho.state.loaded import Loaded
from pyecho.worth.estimate import LEAST_BINS, MOST_VALIDATIONS, Evidence, Floats

# Attributes of a record that are saved by their names.
NUMBERS = ("width", "batches", "later", "validated", "every")
BINNED = ("counts", "sums", "squares")
VALIDATED = ("validation_uses", "validation_losses")

USES = 16
"""Columns: uses 0 to 14, and all later ones together."""
BINS = 512
"""Most bins. When all are full, each two become one. Also most validation losses."""
MOST_LOSS = 1e100
"""Larger losses have squares that do not add up; they count as not finite."""
LARGEST = np.finfo(np.float64).max
SAMPLE = 256
"""So many of the first fresh items are remembered: the next pass has begun once one comes again."""


class Record:
    """Uses, losses and squares of fresh losses in bins, and validation losses. Not thread-safe."""

    def __init__(self) -> None:
        self.width = 1  # batches in a bin, a power of two
        self.batches = 0
        self.counts = np.zeros((BINS, USES))
        self.sums = np.zeros((BINS, USES))
        self.squares = np.zeros(BINS)  # of losses on fresh uses
        self.later = -1  # batches before the first one of a later pass; -1: there was none
        self.first: set[int] = set()  # source indexes of the first fresh uses
        self.validated = 0  # validation losses so far
        self.every = 1  # one of these many is kept, a power of two
        self.validation_uses = np.zeros((BINS, USES))  # uses before each that is kept
        self.validation_losses = np.zeros(BINS)

    @property
    def is_new(self) -> bool:
        """True if nothing was added."""
        return not (self.batches or self.validated)

    @property
    def bins(self) -> int:
        """Number of bins that have begun."""
        return -(-self.batches // self.width)

    @property
    def validations(self) -> int:
        """Number of validation losses that are kept."""
        return -(-self.validated // self.every)

    @property
    def seen(self) -> Floats:
        """Uses so far, by number."""
        return np.asarray(self.counts.sum(0))

    def add(self, losses: Floats, uses: NDArray[Any], items: NDArray[np.int64]) -> None:
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
        if self.validations == BINS:
            self._thin()
        if self.validated % self.every == 0:
            at = self.validations
            self.validation_uses[at], self.validation_losses[at] = self.seen, loss
        self.validated += 1

    def merge(self, other: Record) -> None:
        """Add what another rank saw in the same batches."""
        other = copy.deepcopy(other)
        if self.is_new or other.is_new:  # which has no part in validation losses
            self.__dict__ = (other if self.is_new else self).__dict__
            return
        while self.width != other.width:
            (self if self.width < other.width else other)._halve()
        while self.every != other.every:
            (self if self.every < other.every else other)._thin()
        for name in (*BINNED, *VALIDATED):
            getattr(self, name)[...] += getattr(other, name)
        self.validation_losses /= 2
        self.batches = max(self.batches, other.batches)
        self.validated = min(self.validated, other.validated)
        began = [later for later in (self.later, other.later) if later >= 0]
        self.later = min(began, default=-1)

    def evidence(self) -> tuple[list[Evidence], bool]:
        """Return each kind of losses on unseen examples, and whether they go up to now.

        They do not if they are of a first pass that is over.
        """
        uses = self.validation_uses[: self.validations]
        losses = self.validation_losses[: self.validations]
        if self.later < 0:
            return [self._fresh(self.bins), _validated(uses, losses)], True
        bins = self.later // self.width
        first = uses.sum(1) <= self.counts[:bins].sum()
        if len(first) - first.sum() >= LEAST_BINS:
            return [_validated(uses, losses)], True
        return [self._fresh(bins), _validated(uses[first], losses[first])], False

    def _fresh(self, bins: int) -> Evidence:
        """Return the mean loss on fresh uses in each of the first bins, at its middle."""
        counts = self.counts[:bins]
        count = counts[:, 0]
        kept = _lawful(count)
        if len(kept) == 0:
            return Evidence(np.zeros((0, USES)), np.zeros(0), np.zeros(0))
        seen = (counts.cumsum(0) - counts / 2)[kept]
        losses = self.sums[kept, 0] / count[kept]
        variance = np.maximum(self.squares[kept] / count[kept] - losses**2, 0)
        window = np.ones(min(9, len(kept)))
        ones = np.ones(len(kept))
        smooth = np.convolve(variance, window, "same") / np.convolve(ones, window, "same")
        precision = count[kept] / np.maximum(smooth, 1e-12 + 1e-6 * smooth.mean())
        return Evidence(seen, losses, precision)

    def gap(self, last: int) -> tuple[float, ...]:
        """Return the losses on repeats less those on fresh uses in the last quarter of the bins."""
        recent = slice(self.bins * 3 // 4, self.bins)
        counts, sums = self.counts[recent].sum(0), self.sums[recent].sum(0)
        with np.errstate(invalid="ignore", divide="ignore"):
            means = sums / counts
        return tuple((means[1 : last + 1] - means[0]).tolist())

    def state(self) -> dict[str, Any]:
        """Return numbers and lists of them."""
        numbers = {name: getattr(self, name) for name in NUMBERS}
        lists = {name: array.tolist() for name, array in self._filled().items()}
        return {**numbers, **lists, "first": sorted(self.first)}

    @classmethod
    def of(cls, state: Loaded) -> Record:
        """Return the record of a state. Raises `CheckpointError`."""
        record = cls()
        for name in NUMBERS:
            setattr(record, name, state[name].of(int))
        for count, size in (("batches", "width"), ("validated", "every")):
            width = state[size].count()
            if width < 1 or width & (width - 1):
                state[size].fail("a power of two")
            state[count].count(min(MOST_COUNTED, BINS * width))
        if not -1 <= record.later <= record.batches:
            state["later"].fail(f"a number of -1 to {record.batches}")
        record.first = set(state["first"].numbers(int, -(2**63), 2**63 - 1, None).tolist())
        for name, array in record._filled().items():
            least = -LARGEST if name in ("sums", "validation_losses") else 0
            array[...] = state[name].numbers(float, least, LARGEST, *array.shape)
        most = 1.01 * MOST_LOSS  # of the losses that `add` takes, and rounding
        for name, sums in (("sums", record.sums / most), ("squares", record.squares / most / most)):
            if (np.abs(sums) > (record.counts if sums.ndim > 1 else record.counts[:, 0])).any():
                state[name].fail(f"sums of losses below {MOST_LOSS:g}")
        return record

    def _filled(self) -> dict[str, Floats]:
        """Return what is in use of each array."""
        lengths = dict.fromkeys(BINNED, self.bins) | dict.fromkeys(VALIDATED, self.validations)
        return {name: getattr(self, name)[:length] for name, length in lengths.items()}

    def _note(self, fresh: NDArray[np.int64]) -> None:
        """Find out whether a later pass has begun."""
        if self.later >= 0:
            return
        indexes = fresh.tolist()
        if not self.first.isdisjoint(indexes):
            self.later = self.batches
        elif len(self.first) < SAMPLE:
            self.first.update(indexes)

    def _thin(self) -> None:
        for name in VALIDATED:
            array = getattr(self, name)
            array[: BINS // 2] = array[::2]
        self.every *= 2

    def _halve(self) -> None:
        for name in BINNED:
            array = getattr(self, name)
            array[: BINS // 2] = array[::2] + array[1::2]
            array[BINS // 2 :] = 0
        self.width *= 2


def _validated(uses: Floats, losses: Floats) -> Evidence:
    kept = _lawful(uses[:, 0])
    return Evidence(uses[kept], losses[kept], np.ones(len(kept)), MOST_VALIDATIONS)


def _lawful(fresh: Floats) -> NDArray[np.intp]:
    """Return rows with fresh uses, less those of the first steps, which follow no law."""
    rows = np.flatnonzero(fresh > 0)
    return rows[len(rows) // 64 :]
