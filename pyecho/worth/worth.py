"""`pyecho.Worth`: the worth of a repeat, measured in a training run."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyecho._core import CheckpointError, ConfigError
from pyecho.items.spec import EchoInfo
from pyecho.state.loaded import Loaded
from pyecho.worth.arrival import Arrival, arrival_of
from pyecho.worth.estimate import LEAST_BINS, PRIOR, WIDEST, WorthEstimate, posterior
from pyecho.worth.record import Record

MOST_PENDING = 128
"""Batches of which losses may be on their way from a device. Then the oldest are waited for."""


class Pending(NamedTuple):
    """A batch that was observed, and is not counted yet."""

    losses: Arrival
    uses: NDArray[Any]
    items: NDArray[Any]


class Worth:
    """The worth of a repeat of an example beside a fresh one, measured while you train.

    In the first pass over the data, losses on fresh uses are losses on unseen examples. How fast
    they fall, in times with more and with fewer repeats, tells how much the repeats are worth::

        worth = pyecho.Worth()
        for batch, info in loader:  # with_info=True
            losses = loss_of(batch)  # one for each example
            worth.observe(losses, info)
            ...
        print(worth.estimate())

    A factor that never changes cannot tell: use `Adaptive`, or begin with a while of another
    factor. `validation` losses make the estimate sharper. Once examples come again in a later
    pass, losses on fresh uses are no longer those of unseen examples; these take their place.

    Memory is bounded (0.25 MB). Not thread-safe; picklable.
    """

    def __init__(self) -> None:
        self._record = Record()
        self._pending: deque[Pending] = deque()
        self._estimate: WorthEstimate | None = None

    @property
    def batches(self) -> int:
        """Number of batches observed."""
        return self._record.batches + len(self._pending)

    def observe(self, losses: Any, info: EchoInfo) -> None:
        """Take the losses of a batch, before its step.

        Losses on a CUDA or JAX device are copied without a wait, and counted when they have come.

        Parameters
        ----------
        losses
            One for each example, shape (B,), any float dtype: an array, a list, a tensor of PyTorch
            on any device, or an array of JAX. Those that are not finite are left out.
        info
            The batch's, from a loader made with `with_info=True`. Something else, or another number
            of losses, is a `ConfigError`.
        """
        if not isinstance(info, EchoInfo):
            raise ConfigError(
                f"Worth.observe needs the EchoInfo of the batch, got {type(info).__name__}; make "
                "the loader with with_info=True, and pass on what it yields beside each batch"
            )
        uses, items = np.array(info.use), np.array(info.source_index)
        try:
            shape, arrival = tuple(np.shape(losses)), arrival_of(losses)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"Worth.observe needs losses as numbers, got {type(losses).__name__} ({error})"
            ) from error
        if shape != uses.shape:
            remedy = "compute the loss without a reduction (reduction='none')"
            if shape[1:]:
                remedy = "take the mean over all axes but the first"
            elif shape:
                remedy = "pass all losses of a batch, and the info that came with it"
            raise ConfigError(
                f"Worth.observe needs one loss for each of {len(uses)} examples, shape "
                f"{uses.shape}, got {type(losses).__name__} of shape {shape}; {remedy}"
            )
        self._pending.append(Pending(arrival, uses, items))
        self._count(MOST_PENDING)

    def validation(self, loss: float) -> None:
        """Take a validation loss, of the same examples each time. All ranks give the same.

        From two dozen on they count beside the losses on fresh uses, and tell more, since their
        examples do not change. From the second pass on only these say what repeats are worth.
        One that is not finite is left out.
        """
        try:
            value = float(loss.detach() if hasattr(loss, "detach") else loss)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ConfigError(
                f"Worth.validation needs a number, the mean loss, got {type(loss).__name__} "
                f"({error})"
            ) from error
        self._count()
        self._record.validate(value)
        self._estimate = None

    def estimate(self) -> WorthEstimate:
        """Return what is known so far; the same object until more was observed. Takes 30 ms."""
        self._count()
        if self._estimate is None:
            with np.errstate(all="ignore"):  # of numbers that only a damaged state has
                self._estimate = _estimate_of(self._record)
        return self._estimate

    def merge(self, other: Worth) -> None:
        """Add what another rank observed in the same steps."""
        if not isinstance(other, Worth):
            raise ConfigError(
                f"Worth.merge needs another Worth, got {type(other).__name__}; have a new Worth "
                "load_state_dict() a state, and merge that"
            )
        self._count()
        other._count()
        self._record.merge(other._record)
        self._estimate = None

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """Forget at the end of a block what it observes, as in a trial run."""
        kept, self.__dict__ = self.__dict__, Worth().__dict__
        try:
            yield
        finally:
            self.__dict__ = kept

    def state_dict(self) -> dict[str, Any]:
        """Return all that was observed: numbers and lists of them, independent of this object."""
        self._count()
        return self._record.state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Become what `state_dict` has saved. Raises `CheckpointError`, unchanged, if it cannot."""
        try:
            record = Record.of(Loaded(dict(state) if isinstance(state, Mapping) else state))
        except CheckpointError as error:
            raise CheckpointError(f"this is no state of a Worth: {error}") from error
        self._pending.clear()
        self._record, self._estimate = record, None

    def __repr__(self) -> str:
        """Show how much was observed."""
        return f"pyecho.Worth({self.batches:,} batches)"

    __getstate__ = state_dict

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take it again."""
        self.__init__()  # type: ignore[misc]
        self.load_state_dict(state)

    def _count(self, most_pending: int = 0) -> None:
        """Count losses that have come, and wait for the oldest if there are more on their way."""
        pending = self._pending
        while pending and (len(pending) > most_pending or pending[0].losses.ready()):
            oldest = pending[0]
            losses = np.asarray(oldest.losses.read(), np.float64)  # Ctrl-C while it waits keeps it
            pending.popleft()
            self._record.add(losses, oldest.uses, oldest.items)
            self._estimate = None


def _estimate_of(record: Record) -> WorthEstimate:
    last = int(np.flatnonzero(record.seen).max(initial=0))
    kinds, generalises = record.evidence()
    enough = [evidence for evidence in kinds if len(evidence.losses) >= LEAST_BINS]
    weights = PRIOR
    if last and enough:
        weights = posterior(enough, float(record.seen.sum() / record.batches))
    estimate = WorthEstimate(False, "", generalises, record.gap(last), weights, last)
    repeats = max(1, min(last, 3))
    low, high = ((value - 1) / repeats for value in estimate.effective_interval(1 + repeats))
    reason = ""
    if last == 0:
        reason = "no example was repeated yet"
    elif not enough:
        most = max(len(evidence.losses) for evidence in kinds)
        reason = f"there were {most} losses on fresh examples, and {LEAST_BINS} are needed"
    elif high - low > WIDEST:
        reason = (
            f"a repeat's worth lies between {low:.2f} and {high:.2f}; it shows when the mix of "
            "fresh and repeated uses changes, or when more was seen"
        )
    return replace(estimate, identified=not reason, reason=reason)
