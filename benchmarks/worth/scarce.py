"""Scarce data: 1,024 images over a slow line (R = 6). What brings a network to its target first?

The images are scikit-learn's handwritten digits; every use is another crop. Training is real, the
clock only counts: an image takes 6 times as long on the line as a step takes for it. Each strategy
may choose the best of some learning rates, as in the paper.

    e = 1 ... 12    the line at every pass
    cache           the line in the first pass only, e = 1
    cache, e = 6    the same, and echoing in the first pass

Prints, and draws as scarce.svg, the time to the target in times of the first pass of the line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from common.command import add_seeds, make_output, new_parser, write_results

import pyecho
from pyecho import ops
from worth.digits import IMAGES, cost_to_target, costs_of, digits

BATCH, RATIO, TARGET, GIVES_UP = 32, 6, 0.04, 60
RATES = (0.02, 0.05, 0.1)


@dataclass(frozen=True)
class Strategy:
    """Factors of the first pass and of the later ones, and whether these come from memory."""

    name: str
    first: float
    later: float
    cached: bool = False


STRATEGIES = {
    each.name: each
    for each in (
        *(Strategy(f"e = {factor}", factor, factor) for factor in (1, 2, 3, 4, 6, 8, 12)),
        Strategy("cache", 1, 1, cached=True),
        Strategy("cache, e = 6", 6, 1, cached=True),
    )
}


def batches(strategy: Strategy, examples: dict[str, np.ndarray], seed: int) -> Iterator[tuple]:
    """Yield batches and the time of each, in times of the first pass, pass after pass."""
    line = 1 / IMAGES
    for epoch in range(10_000):
        factor = strategy.later if epoch else strategy.first
        slow = not (strategy.cached and epoch)
        order = np.random.default_rng([seed, epoch]).permutation(IMAGES)
        loader = pyecho.EchoLoader(
            {name: array[order] for name, array in examples.items()},
            factor,
            batch_size=BATCH,
            ops={"image": [ops.RandomCrop((8, 8)), ops.ToCHW()]},
            seed=seed,
        )
        loader.set_epoch(epoch)
        for batch in loader:
            uses = len(batch["label"])
            yield batch, max(uses / factor if slow else 0, uses / RATIO) * line


def passes_to_target(name: str, rate: float, seed: int) -> float:
    """Train, and return the time to the target."""
    torch.set_num_threads(1)
    examples, *tested = digits()
    made = batches(STRATEGIES[name], examples, seed)
    return cost_to_target(made, TARGET, GIVES_UP, rate, seed, tested)


def draw(found: dict[str, np.ndarray], path: Path) -> None:
    """Draw medians and ranges."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"svg.hashsalt": "pyecho", "font.size": 9})
    figure, panel = plt.subplots(figsize=(7, 2.8), layout="constrained")
    middle = np.array([np.median(times) for times in found.values()])
    low, high = np.array([[times.min(), times.max()] for times in found.values()]).T
    colors = ["#6b7f99" if "cache" in name else "#2a6f4e" for name in found]
    panel.bar(list(found), middle, color=colors, yerr=[middle - low, high - middle], ecolor="#333")
    for x, value in enumerate(middle):
        panel.text(x, value / 2, f"{value:.1f}", ha="center", color="white")
    panel.set_ylabel(f"passes of the line\nto {TARGET:.0%} error")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else {})


def main(arguments: list[str]) -> None:
    """Measure, print and draw."""
    parser = new_parser("worth.py scarce", __doc__)
    add_seeds(parser, 5)
    options = parser.parse_args(arguments)
    make_output(options)
    found = costs_of(passes_to_target, STRATEGIES, RATES, options)
    for name, times in found.items():
        print(f"{name}: {np.median(times):.2f} [{times.min():.2f}, {times.max():.2f}]")
    write_results(options.output, "scarce", passes=found)
    draw(found, options.output / "scarce.svg")
