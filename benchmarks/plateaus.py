"""Does `pyecho.Worth` tell the truth where the learning curve has plateaus?

A small network learns a smooth function by plain SGD on data without an end, which it does in
steps. A plan of two factors, e = 1 and e = 4, changes every so many batches. Printed: E(4), counted
with runs of fixed factors as in learners.py, and how many of the 90% intervals for it miss all that
was counted. Takes some minutes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from common import finish, new_parser, new_report, sample
from numpy.typing import NDArray

import pyecho
from pyecho.bench.row import Row
from pyecho.torch import EchoLoader

BATCH, REPEATED = 50, 13  # rows of a batch; fresh ones of them at e = 4
EVERY = 50  # batches between test losses
TARGETS = (5 / 16, 9 / 16, 7 / 8)  # of the way with e = 4

Examples = NDArray[np.float32]


def function(examples: torch.Tensor) -> torch.Tensor:
    """Return what the network learns."""
    return torch.sin(2 * examples[:, 0]) + examples[:, 1] * examples[:, 2]


class Training:
    """A network and its optimizer."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self._network = torch.nn.Sequential(
            torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)
        )
        self._optimizer = torch.optim.SGD(self._network.parameters(), lr=0.03)
        self._test = torch.randn(4000, 4, generator=torch.Generator().manual_seed(1))

    def losses(self, examples: torch.Tensor) -> torch.Tensor:
        """Return the loss of each example."""
        found: torch.Tensor = (self._network(examples)[:, 0] - function(examples)) ** 2
        return found

    def step(self, losses: torch.Tensor) -> None:
        """Learn."""
        self._optimizer.zero_grad()
        losses.mean().backward()
        self._optimizer.step()

    def test_loss(self) -> float:
        """Return the mean loss of other examples."""
        with torch.no_grad():
            return float(self.losses(self._test).mean())


def examples_of(seed: int, number: int) -> Examples:
    """Return random examples, none twice."""
    return np.random.default_rng(seed).normal(size=(number, 4)).astype(np.float32)


def test_losses(seed: int, factor: int, batches: int) -> Iterator[float]:
    """Yield the lowest test loss so far, every `EVERY` batches."""
    training, lowest = Training(seed), np.inf
    examples = examples_of(seed, BATCH * (batches // factor + 20))
    for number, batch in zip(
        range(1, batches + 1), EchoLoader(examples, factor, batch_size=BATCH), strict=False
    ):
        training.step(training.losses(batch))
        if number % EVERY == 0:
            lowest = min(lowest, training.test_loss())
            yield lowest


def counted(seed: int, batches: int) -> list[float]:
    """Return E(4) by the batches that both factors need to the same test losses."""
    fresh, echoed = (np.array([*test_losses(seed, factor, batches)]) for factor in (1, 4))
    found = []
    for share in TARGETS:
        at = int(share * len(echoed))
        reached = np.flatnonzero(fresh <= echoed[at])
        if len(reached):
            found.append(4 * (int(reached[0]) + 1) / (at + 1))
    return found


def estimated(seed: int, batches: int, phase: int) -> pyecho.WorthEstimate:
    """Return what is known after a run whose factor changes after each phase."""
    plan = ([BATCH] * phase + [REPEATED] * phase) * (batches // (2 * phase))
    factor = pyecho.Adaptive(64).replay({0: plan})
    examples = examples_of(seed, BATCH * (batches + 20))
    training, worth = Training(seed), pyecho.Worth()
    loader = EchoLoader(examples, factor, batch_size=BATCH, with_info=True, seed=seed)
    for _, (batch, info) in zip(plan, loader, strict=False):
        losses = training.losses(batch)
        worth.observe(losses, info)
        training.step(losses)
    return worth.estimate()


if __name__ == "__main__":
    options = new_parser(__doc__, seeds=10).parse_args()
    batches = 400 if options.quick else 4000
    report = new_report("plateaus", "E(4) on plateaus", options, batches=batches)
    torch.set_num_threads(1)
    seeds = range(1, options.seeds + 1)
    truths = [each for seed in seeds for each in counted(seed, batches)]
    report.add("E(4)", [Row("counted with fixed factors", sample(truths), "fresh examples a use")])
    for phase in (100, 200, 500, 1000):
        found = [estimated(seed, batches, phase) for seed in seeds]
        known = [each.effective_interval(4) for each in found if each.identified]
        low = sum(above < min(truths) for _, above in known)
        high = sum(below > max(truths) for below, _ in known)
        report.note(
            f"phases of {phase:,} batches: {len(known)} of {len(found)} identified, of which {low} "
            f"are too low, {high} too high"
        )
    finish(report, options)
