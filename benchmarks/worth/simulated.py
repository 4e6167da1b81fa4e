"""Does `factor="auto"` find the factor with the most learning per second?

Learners: real loaders and a real `Worth`, with losses of learners whose worths of repeats are known
and with a clock that only counts: an item takes R times as long as a step takes for a use. Printed:
learning per second of the whole run, probing included, and of its last quarter, over that of the
best fixed factor.

Sleeps: a source and steps that sleep (R = 4), and batches per second with "auto", fixed factors and
`Adaptive`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from common.command import add_seeds, printing_parser
from rich.progress import track

import pyecho
from pyecho.worth.auto import FACTORS, MOST

BATCH, POOL = 64, 640
LATER = np.arange(MOST)
PROFILES = {
    "worth nothing": 0.0 * LATER,
    "half, fading": 0.5 * 0.6**LATER,
    "0.7, fading slowly": 0.7 * 0.9**LATER,
    "as good as fresh": 1.0 + 0 * LATER,
    "harmful from the third on": np.maximum(0.8 - 0.4 * LATER, -0.3),
}
"""Worths of repeats."""
RATIOS = (1, 2, 4, 8, 16)


@dataclass
class Clock:
    """Counts what a run would take: both sides work at once, and the pool keeps them apart."""

    ratio: float
    past: float = 0.0
    fresh: int = 0
    emitted: int = 0
    window: tuple[int, int] = (0, 0)  # fresh and emitted at its beginning

    def step(self, fresh: int, rows: int) -> None:
        """Count a batch."""
        self.fresh += fresh
        self.emitted += rows
        if self.emitted - self.window[1] > 5 * POOL:
            self.past, self.window = self.seconds, (self.fresh, self.emitted)

    @property
    def seconds(self) -> float:
        """Time so far."""
        fresh, emitted = self.window
        return self.past + max((self.fresh - fresh) * self.ratio, self.emitted - emitted)

    def stats(self) -> pyecho.EchoStats:
        """Return what a loader would have measured."""
        return pyecho.EchoStats(
            read=self.fresh,
            fresh=self.fresh,
            emitted=self.emitted,
            upstream_seconds=self.fresh * self.ratio,
            downstream_seconds=float(self.emitted),
        )


def speeds(profile: np.ndarray, ratio: float, batches: int, seed: int) -> tuple[float, float]:
    """Return learning per second over all and the last quarter, and that of the best factor."""
    rng = np.random.default_rng(seed)
    worths = np.r_[1, profile]
    best = max(
        float(np.interp(each, np.arange(MOST + 2), np.r_[0, worths.cumsum()])) / max(ratio, each)
        for each in FACTORS
    )
    worth, clock, effective = pyecho.Worth(), Clock(ratio), 0.0
    source = np.arange(batches * BATCH, dtype=np.float32)
    loader = pyecho.EchoLoader(
        source, "auto", batch_size=BATCH, shuffle_buffer=POOL, with_info=True, worth=worth
    )
    loader._config.adaptive._stats = lambda: clock.stats
    marks = []
    for number, (_, info) in enumerate(loader):
        if number == batches:
            break
        marks.append((effective, clock.seconds))
        effective += worths[info.use].sum()
        mean = 0.2 + 2 * (1 + effective / 5000) ** -0.5
        worth.observe(rng.gamma(2, mean / 2, len(info.use)), info)
        clock.step(int((info.use == 0).sum()), len(info.use))
    loader.close()
    late = marks[len(marks) * 3 // 4]
    whole = effective / clock.seconds / best
    return whole, (effective - late[0]) / (clock.seconds - late[1]) / best


def print_learners(batches: int, seeds: int) -> None:
    """Print speeds beside those of the best fixed factors."""
    print(f"learning per second over that of the best fixed factor, {batches} batches: all | late")
    for name, profile in PROFILES.items():
        cells = []
        for ratio in track(RATIOS, name, transient=True):
            found = [speeds(profile, ratio, batches, seed) for seed in range(seeds)]
            whole, late = np.median(found, axis=0)
            cells.append(f"R={ratio} {whole:.2f} | {late:.2f}")
        print(f"{name}: " + ", ".join(cells))


class Slow:
    """A source that sleeps for each item."""

    def __init__(self, seconds: float, items: int) -> None:
        self.seconds, self.items = seconds, items

    def __iter__(self) -> Iterator[np.ndarray]:
        """Yield the items."""
        for item in np.zeros((self.items, 16), np.float32):
            time.sleep(self.seconds)
            yield item


def print_sleeps() -> None:
    """Print batches per second with sleeps."""
    step, ratio, size = 2e-3, 4, 16
    for factor in ("auto", 3, 4, pyecho.Adaptive(MOST)):
        worth = pyecho.Worth()
        more = {"worth": worth} if factor == "auto" else {}
        loader = pyecho.EchoLoader(
            Slow(ratio * step / size, 10_000_000),
            factor,
            batch_size=size,
            with_info=True,
            shuffle_buffer=10 * size,
            **more,
        )
        begun, batches = 0.0, 0
        for batch, info in loader:
            begun = begun or time.perf_counter()
            if batches == 4000:
                break
            time.sleep(step)
            worth.observe(batch[:, 0], info)
            batches += 1
        speed = batches / (time.perf_counter() - begun)
        print(f"sleeps, R = {ratio}, {factor}: {speed:.0f} batches/s")
        loader.close()


def main(arguments: list[str]) -> None:
    """Measure and print."""
    parser = printing_parser("worth.py simulated", __doc__)
    parser.add_argument("--batches", type=int, default=30_000, help="default: %(default)s")
    add_seeds(parser, 3)
    parser.add_argument("--sleeps", action="store_true", help="with sleeps instead")
    options = parser.parse_args(arguments)
    if options.sleeps:
        print_sleeps()
    else:
        print_learners(options.batches, options.seeds)
