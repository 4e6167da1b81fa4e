"""Does `pyecho.Worth` tell the truth where the learning curve has plateaus?

A small network learns a smooth function by plain SGD on data without an end, which it does in
steps. A plan of two factors, e = 1 and e = 4, changes every so many batches. Printed: E(4), counted
with runs of fixed factors as in `learners --training`, and how many of the 90% intervals for it
miss all that was counted. Takes some minutes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from common.command import add_seeds, printing_parser
from numpy.typing import NDArray

import pyecho
from pyecho.torch import EchoLoader

BATCH, REPEATED = 50, 13  # rows of a batch; fresh ones of them at e = 4
EVERY = 50  # batches between test losses
TARGETS = (25, 45, 70)  # of the test losses with e = 4

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
    for at in TARGETS:
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


def main(arguments: list[str]) -> None:
    """Print the table."""
    parser = printing_parser("worth.py plateaus", __doc__)
    add_seeds(parser, 10)
    parser.add_argument("--batches", type=int, default=4000, help="default: %(default)s")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    seeds = range(1, options.seeds + 1)
    truths = [each for seed in seeds for each in counted(seed, options.batches)]
    low, high = min(truths), max(truths)
    print(f"E(4), counted in {len(seeds)} runs: {np.median(truths):.2f} [{low:.2f}, {high:.2f}]")
    for phase in (100, 200, 500, 1000):
        found = [estimated(seed, options.batches, phase) for seed in seeds]
        known = [each.effective_interval(4) for each in found if each.identified]
        under = sum(above < low for _, above in known)
        over = sum(below > high for below, _ in known)
        print(
            f"phases of {phase:,} batches: {len(known)} identified, of which {under} are too low, "
            f"{over} too high"
        )
