"""Scarce data: 1,024 images over a slow line (R = 6). What brings a network to its target first?

The images are scikit-learn's handwritten digits; every use is another crop. Training is real, the
clock only counts: an image takes 6 times as long on the line as a step takes for it. Each strategy
may choose the best of three learning rates, as in the paper.

    e = 1 ... 12    the line at every pass
    cache           the line in the first pass only, e = 1
    cache, e = 6    the same, and echoing in the first pass

Prints, and draws as scarce.svg, the time to the target in times of the first pass of the line.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from common import finish, new_parser, new_report, save_figure
from digits import IMAGES, cost_to_target, costs_of, digits
from matplotlib.figure import Figure

import pyecho
from pyecho import ops
from pyecho.bench.row import Row
from pyecho.bench.sampling import Sample

BATCH, RATIO, TARGET, GIVES_UP = 32, 6, 0.04, 60
RATES = (0.02, 0.05, 0.1)
STRATEGIES = {
    **{f"e = {factor}": (factor, factor, False) for factor in (1, 2, 3, 4, 6, 8, 12)},
    "cache": (1, 1, True),
    "cache, e = 6": (6, 1, True),
}
"""Factors of the first pass and of later ones, and whether these come from memory."""


def batches(name: str, seed: int) -> Iterator[tuple]:
    """Yield batches and the time of each, in times of the first pass, pass after pass."""
    first, later, cached = STRATEGIES[name]
    for epoch in range(10_000):
        factor = later if epoch else first
        slow = not (cached and epoch)
        order = np.random.default_rng([seed, epoch]).permutation(IMAGES)
        loader = pyecho.EchoLoader(
            {name: array[order] for name, array in digits()[0].items()},
            factor,
            batch_size=BATCH,
            ops={"image": [ops.RandomCrop((8, 8)), ops.ToCHW()]},
            seed=seed,
        )
        loader.set_epoch(epoch)
        for batch in loader:
            uses = len(batch["label"])
            yield batch, max(uses / factor if slow else 0, uses / RATIO) / IMAGES


def passes_to_target(name: str, rate: float, seed: int, quick: bool) -> float:
    """Train, and return the time to the target."""
    most = 0.1 if quick else GIVES_UP
    return cost_to_target(batches(name, seed), TARGET, most, rate, seed)


def drawn(found: dict[str, Sample]) -> Figure:
    """Draw medians and ranges."""
    figure = Figure(figsize=(7, 2.8), layout="constrained")
    panel = figure.subplots()
    middle = [times.median for times in found.values()]
    errors = [(times.median - times.low, times.high - times.median) for times in found.values()]
    colors = ["#6b7f99" if "cache" in name else "#2a6f4e" for name in found]
    panel.bar(list(found), middle, color=colors, yerr=list(zip(*errors, strict=True)))
    for x, value in enumerate(middle):
        panel.text(x, value / 2, f"{value:.1f}", ha="center", color="white")
    panel.set_ylabel(f"passes of the line\nto {TARGET:.0%} error")
    return figure


if __name__ == "__main__":
    options = new_parser(__doc__, seeds=5).parse_args()
    report = new_report("scarce", "Scarce data over a slow line", options)
    report.ratio_name = "Times as fast"
    found = costs_of(passes_to_target, STRATEGIES, RATES, options)
    slow = found["e = 1"]
    rows = [
        Row(name, times, "passes", slow, "e = 1", slow / times) for name, times in found.items()
    ]
    report.add(f"Passes of the line to an error of {TARGET:.0%}", rows)
    finish(report, options)
    save_figure(drawn(found), options.output / "scarce.svg")
