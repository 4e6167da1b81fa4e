"""Does `pyecho.Worth` tell the truth?

Learners: synthetic losses of learners whose worth of a repeat is known, with noise as in real
losses (of each example, and of the steps, which follow each other), fed to `Worth.observe` batch by
batch, with factors that change every few hundred batches; also with a factor that never changes.
Printed: how often the true worth of four uses lies in the 90% interval, how wide that is, how often
a learner counts as identified, and what the calls cost.

Network (a minute more): a small network of PyTorch on data without an end. What e uses
are worth is counted with runs of fixed factors: how many fresh examples they need to a loss. Beside
it stand estimates from a run whose factor changes, without and with held-out losses.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
from common import finish, new_parser, new_report, sample, shown
from numpy.typing import NDArray

import pyecho
from pyecho.bench.report import Report
from pyecho.bench.row import Row

LEAST_WIDTH = 3  # repeats of which the mean worth is judged


@dataclass(frozen=True)
class Learner:
    """A learner whose losses depend on the effective examples only."""

    first: float
    decay: float
    exponent: float
    floor: float
    above: float
    scale: float  # examples
    noise: float  # of an example's loss, as a part of it
    step_noise: float
    persistence: float
    gap: float  # losses on repeats are lower by this part

    @staticmethod
    def drawn(rng: np.random.Generator, batch: int) -> Learner:
        """Return a random one."""
        return Learner(
            first=rng.uniform(0, 1),
            decay=rng.uniform(0.3, 1),
            exponent=rng.uniform(0.2, 0.8),
            floor=rng.uniform(0.05, 0.5),
            above=rng.uniform(1, 3),
            scale=batch * rng.uniform(20, 100),
            noise=rng.uniform(0.5, 1.2),
            step_noise=rng.uniform(0, 0.03),
            persistence=rng.uniform(0, 0.6),
            gap=rng.uniform(0, 0.3),
        )

    def effective(self, factor: int) -> float:
        """Return what so many uses are worth."""
        return 1 + float((self.first * self.decay ** np.arange(factor - 1)).sum())


def uses_of(factors: Iterator[float], batch: int, rng: np.random.Generator) -> Iterator[NDArray]:
    """Yield the uses in batches of a pool whose factor moves towards each of `factors`."""
    now = 1.0
    for factor in factors:
        now += (factor - now) / 30
        share = np.clip(now - np.arange(int(now) + 1), 0, 1)
        yield rng.choice(len(share), batch, p=share / share.sum())


def phases(rng: np.random.Generator, fixed: bool) -> Iterator[float]:
    """Yield a factor for each batch: 1 and a higher one in turn."""
    high, length = float(rng.choice([2, 4, 8])), int(rng.integers(150, 400))
    for batch in count():
        yield high if fixed or batch // length % 2 else 1.0


def learned(rng: np.random.Generator, fixed: bool) -> tuple[Learner, pyecho.Worth, float]:
    """Return a learner, what was observed of it, and the seconds of an observation."""
    batch = int(rng.choice([32, 64, 128]))
    learner, worth = Learner.drawn(rng, batch), pyecho.Worth()
    batches = int(rng.integers(1500, 6000))
    worths = np.r_[1, learner.first * learner.decay ** np.arange(15)]
    effective, step, spent, fresh = 0.0, 0.0, 0.0, 0
    for _, use in zip(range(batches), uses_of(phases(rng, fixed), batch, rng), strict=False):
        effective += worths[use].sum()
        step = learner.persistence * step + rng.normal() * learner.step_noise
        mean = learner.floor + learner.above * (1 + effective / learner.scale) ** -learner.exponent
        mean = mean * (1 + step) * np.where(use > 0, 1 - learner.gap, 1)
        losses = rng.gamma(learner.noise**-2, mean * learner.noise**2).astype(np.float32)
        items = np.where(use == 0, fresh + np.arange(batch), 0)
        fresh += batch
        info = pyecho.EchoInfo(items, use.astype(np.int32))
        begun = time.perf_counter()
        worth.observe(losses, info)
        spent += time.perf_counter() - begun
    return learner, worth, spent / batches


def measure_learners(report: Report, runs: int, seed: int, fixed: bool) -> None:
    """Measure coverage over so many learners."""
    rng = np.random.default_rng(seed)
    inside, identified, widths, observing, estimating = 0, 0, [], [], []
    for _ in shown(range(runs), "learners"):
        learner, worth, seconds = learned(rng, fixed)
        begun = time.perf_counter()
        estimate = worth.estimate()
        estimating.append(time.perf_counter() - begun)
        observing.append(seconds)
        low, high = estimate.effective_interval(1 + LEAST_WIDTH)
        inside += low <= learner.effective(1 + LEAST_WIDTH) <= high
        identified += estimate.identified
        widths.append((high - low) / LEAST_WIDTH)
    kind = "a factor that never changes" if fixed else "a factor that changes"
    rows = [
        Row("worth in the 90% interval", sample([inside]), f"of {runs} learners"),
        Row("identified", sample([identified]), f"of {runs} learners"),
        Row("median width for a repeat", sample([np.median(widths)]), ""),
        Row("observe", sample([np.median(observing) * 1e6]), "us"),
        Row("estimate", sample([np.median(estimating) * 1e3]), "ms"),
    ]
    report.add(kind, rows)


# ---------------------------------------------------------------- network

FEATURES, BATCH, POOL = 32, 64, 1024
FACTORS = (1, 2, 4)
FRESH, QUICK_FRESH = 400_000, 12_000


def task(seed: int) -> Callable[[int, int], tuple[NDArray, NDArray]]:
    """Return what makes examples: those of a random network of two layers, with noise."""
    rng = np.random.default_rng(seed)
    inner, outer = rng.normal(size=(FEATURES, 64)) / FEATURES**0.5, rng.normal(size=64) / 8

    def examples(number: int, size: int) -> tuple[NDArray, NDArray]:
        drawn = np.random.default_rng([seed, number])
        x = drawn.normal(size=(size, FEATURES)).astype(np.float32)
        y = np.tanh(2 * x @ inner) @ outer + 0.1 * drawn.normal(size=size)
        return x, y.astype(np.float32)

    return examples


def changing(fresh: int) -> pyecho.Adaptive:
    """Return a factor that takes each of FACTORS in turn, as a log of decisions to take again."""
    factors = (FACTORS[batch // 1000 % len(FACTORS)] for batch in count())
    log, taken = [POOL], POOL
    while taken < fresh:
        log.append(min(BATCH // next(factors), fresh - taken))
        taken += log[-1]
    return pyecho.Adaptive(64).replay({0: np.array(log)})


def trained(
    examples: tuple[NDArray, NDArray],
    held: tuple[NDArray, NDArray],
    factor: float | pyecho.Adaptive,
    watching: Sequence[pyecho.Worth] = (),
) -> list[tuple[int, float]]:
    """Train on all examples once; return held-out losses by fresh examples.

    Each `Worth` observes, and the last one gets the held-out losses.
    """
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = torch.nn.Sequential(
        torch.nn.Linear(FEATURES, 128), torch.nn.ReLU(), torch.nn.Linear(128, 1)
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
    held_x, held_y = map(torch.from_numpy, held)
    loader = pyecho.EchoLoader(
        examples, factor, batch_size=BATCH, shuffle_buffer=POOL, with_info=True
    )
    curve, fresh = [], 0
    for step, ((inputs, targets), info) in enumerate(loader):
        losses = (net(torch.from_numpy(inputs)).squeeze(1) - torch.from_numpy(targets)) ** 2
        for worth in watching:
            worth.observe(losses, info)
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
        fresh += int((info.use == 0).sum())
        if step % 50 == 0:
            with torch.no_grad():
                curve.append((fresh, float(((net(held_x).squeeze(1) - held_y) ** 2).mean())))
            for worth in watching[-1:]:
                worth.validation(curve[-1][1])
    return curve


def fresh_to(curve: list[tuple[int, float]], target: float) -> float:
    """Return the fresh examples at which a curve falls below the target."""
    taken, losses = np.array(curve).T
    lowest = np.minimum.accumulate(losses)
    return float(np.interp(-target, -lowest, taken))


def measure_training(report: Report, seed: int, fresh: int) -> None:
    """Compare estimates with what runs of fixed factors count."""
    made, watching = task(seed), (pyecho.Worth(), pyecho.Worth())
    examples, held = made(0, fresh), made(1, 4096)
    curves = {factor: trained(examples, held, factor) for factor in shown(FACTORS, "fixed factors")}
    trained(examples, held, changing(fresh), watching)
    for factor in FACTORS[1:]:
        section = f"a network, E({factor})"
        counted = sample(
            fresh_to(curves[1], loss) / fresh_to(curves[factor], loss)
            for _, loss in curves[1][len(curves[1]) // 4 :: 4]
        )
        report.add(section, [Row("counted", counted, "")])
        for name, worth in zip(("fresh losses", "and validation"), watching, strict=True):
            estimate = worth.estimate()
            low, high = estimate.effective_interval(factor)
            middle = sample([low, estimate.effective(factor), high])
            report.add(section, [Row(f"estimated from {name}, 90% interval", middle, "")])


if __name__ == "__main__":
    options = new_parser(__doc__, runs=200, seed=1).parse_args()
    runs = 2 if options.quick else options.runs
    report = new_report("learners", "What Worth tells", options, runs=runs, seed=options.seed)
    measure_learners(report, runs, options.seed, fixed=False)
    measure_learners(report, max(1, runs // 4), options.seed, fixed=True)
    measure_training(report, options.seed, QUICK_FRESH if options.quick else FRESH)
    finish(report, options)
