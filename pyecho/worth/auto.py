"""`factor="auto"`: the factor with which a run learns most per second."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from pyecho import _core
from pyecho._core import ConfigError
from pyecho.adaptive import Adaptive
from pyecho.stats import EchoStats
from pyecho.warn import warn
from pyecho.worth.estimate import PUBLISHED_USES, WorthEstimate
from pyecho.worth.worth import Worth

if TYPE_CHECKING:
    from pyecho.config import Config

MOST = 32
"""Most uses of an item."""
FIRST_PERIOD = 64
"""Batches until R is known."""
PERIOD = 512
"""Batches between decisions at first; later a sixteenth of all so far."""
PROBES = 24
"""Periods in which the worth of repeats is probed, unless it is known sooner."""
PROBES_EVERY = 4
"""Of so many periods that probe, the last has half as many repeats, so that their worth shows."""
TRUSTED = 8
"""Periods before an estimate is believed."""
GAIN = 1.05
"""A factor is changed for another one that learns so much faster."""
FACTORS = np.unique(np.round(np.geomspace(1, MOST, 41), 2))


class Auto(Adaptive):
    """An `Adaptive` factor that keeps a pace, which `Worth` and the speeds of both sides decide.

    Fresh items are taken as the pace says, and waited for. After a period of batches that `Worth`
    has observed, the pace may change. Until E is known it is R, at most four, and for some periods
    half of that; then the factor e with the most learning per second, E(e) / max(t_up, e * t_down),
    if the gain is certain at one of both ends.
    """

    pace: _core.Pace

    def __init__(self, worth: Worth, pace: float = 2.0) -> None:
        super().__init__(MOST)
        self.worth = worth
        self._stats: Callable[[], Callable[[], EchoStats] | None] = lambda: None
        self.pace = _core.Pace()
        self.pace.value = self._chosen = pace
        self._before = EchoStats()
        self._observed = self._probes = 0
        self._next = FIRST_PERIOD

    def follow(self, loader: Any) -> None:
        """Take the speeds from the statistics of this loader, as long as it lives."""
        if self._stats() is not None:
            return  # this loader is a shallow copy
        self._stats = weakref.WeakMethod(loader.stats)
        self.worth.observers.add(self)

    def observed(self) -> None:
        """Count a batch that `Worth` has observed, and decide at the end of a period."""
        self._observed += 1
        if self._observed < self._next:
            return
        self._next += max(PERIOD, self._observed // 16)
        if (stats := self._stats()) is not None:
            now = stats()
            ratio = _ratio(self._before, now)
            if not math.isnan(ratio):
                self._before = now
                self._decide(ratio)

    def _decide(self, ratio: float) -> None:
        estimate = self.worth.estimate()
        if self._probes < TRUSTED:
            # With too many repeats a network unlearns; too few only cost time.
            self._chosen = max(1.0, min(ratio, PUBLISHED_USES))
            if self._probes == 0 and estimate.generalises:  # count what a state has observed
                before = self.worth.batches - self._observed
                self._probes = min(before // PERIOD, TRUSTED)
        if self._probes >= TRUSTED and estimate.generalises:
            self._chosen = _surely_better(estimate, ratio, self._chosen)
        most = TRUSTED if estimate.identified else PROBES
        probes = estimate.generalises and self._probes < most  # else losses no longer tell
        self._probes += probes
        halved = probes and self._probes % PROBES_EVERY == 0
        self.pace.value = max(1.0, self._chosen / 2) if halved else self._chosen

    def __reduce__(self) -> Any:
        """Return what copies hold: they keep the pace, and follow no loader."""
        return Auto, (self.worth, self.pace.value)

    def __repr__(self) -> str:
        """Show what it does now."""
        return f"auto ({self.pace.value:g})"


def _surely_better(estimate: WorthEstimate, ratio: float, now: float) -> float:
    """Return a factor that surely learns more per second, at most twice as large; else this one."""
    speeds = [estimate.effective(each) / max(ratio, each) for each in FACTORS]
    better = min(float(FACTORS[np.argmax(speeds)]), 2 * now)  # farther off nothing is certain
    period, present = max(ratio, better), max(ratio, now)
    low = estimate.effective_interval(better)[0] / period
    high = estimate.effective_interval(now)[1] / present
    surely = (
        low > GAIN * estimate.effective(now) / present
        or estimate.effective(better) / period > GAIN * high
    )
    return better if surely else now


def auto_of(config: Config) -> Auto:
    """Return the factor for `factor="auto"`. Raises `ConfigError` if something is missing."""
    if not isinstance(config.worth, Worth) or config.batch_size is None or not config.with_info:
        raise ConfigError(
            'factor="auto" needs worth=pyecho.Worth(), which observes the losses of each batch, a '
            f"batch_size and with_info=True; got worth={config.worth!r}, "
            f"batch_size={config.batch_size}, with_info={config.with_info}"
        )
    if config.wiring.ranks > 1:
        raise ConfigError(
            'factor="auto" follows the losses of one process, and there are '
            f"{config.wiring.ranks} ranks; pass a number or an Adaptive"
        )
    return Auto(config.worth)


def check_observed(worth: Worth, batches: int) -> None:
    """Warn if it has observed nothing, although a loader has made so many batches."""
    if batches >= FIRST_PERIOD and worth.batches == 0:
        warn(
            f'factor="auto" has seen no losses in {batches} batches, and stays at two uses; call '
            "worth.observe(losses, info) for each batch",
            RuntimeWarning,
        )


def _ratio(before: EchoStats, now: EchoStats) -> float:
    """Return R in the time between two statistics; NaN if nothing was read or handed out."""
    start, end = (each.upstream_seconds or each.source_seconds for each in (before, now))
    return EchoStats(
        read=now.read - before.read,
        emitted=now.emitted - before.emitted,
        upstream_seconds=max(end - start, 1e-9),
        downstream_seconds=now.downstream_seconds - before.downstream_seconds,
    ).ratio
