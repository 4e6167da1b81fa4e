"""Cache or echo? A map over the size of the data and the number of epochs.

A training needs what P epochs teach, that is P uses of each of N examples, of which a share c of
the decoded examples fits in memory (c = memory / data). Reading an example takes R times as long as
a step takes for it, taking it from the cache nothing, and both sides work at once:

    nothing         P R
    cache           R + (P - 1) max((1 - c) R, 1)
    echo            P / E(e) passes of max(R, e)
    echo and cache  a first pass with e, the others with an e of their own and the cache

E(e) is what e uses in a row of passes teach, in uses of later epochs: repeats from the pool are
worth 0.8, 0.6, 0.45, ... of them, about as the network in docs/worth.md counts, or fade faster.
Each strategy has its best e.

`--measure` runs some cells with real loaders, a source that sleeps and a cache, and prints their
times over these. Writes the map as caching.svg.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from common.command import make_output, new_parser

import pyecho

RATIO = 6.0
SIZES = np.array([0.5, 0.75, 1, 1.25, 1.5, 2, 3, 5, 10, 20])
EPOCHS = np.arange(1, 21)
FACTORS = np.linspace(1, 12, 45)
WORTHS = {
    "repeats worth 0.8, 0.6, 0.45, ...": lambda e: 1 + 0.8 * (1 - 0.75 ** (e - 1)) / 0.25,
    "repeats worth 0.5, 0.25, 0.12, ...": lambda e: 2 - 0.5 ** (e - 1),
}
Effective = Callable[[np.ndarray], np.ndarray]


def times(size: float, epochs: float, effective: Effective) -> dict[str, float]:
    """Return the time of each strategy, in steps for each example."""
    misses = max(0.0, 1 - 1 / size) * RATIO
    taught = effective(FACTORS)
    first = np.maximum(RATIO, FACTORS)
    # A first pass of which only a part is needed, or one and others.
    later = (np.maximum(misses, FACTORS) / taught).min()
    left = np.maximum(0, epochs - taught)
    return {
        "nothing": epochs * RATIO,
        "cache": RATIO + (epochs - 1) * max(misses, 1),
        "echo": float((epochs / taught * first).min()),
        "echo and cache": float((np.minimum(1, epochs / taught) * first + left * later).min()),
    }


def draw(path: Path) -> None:
    """Draw the map: which of cache and echo gains more, how much, and both together."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"svg.hashsalt": "pyecho", "svg.fonttype": "none", "font.size": 8})
    names = ["cache", "echo"]
    colors = plt.matplotlib.colors.ListedColormap(["#6b7f99", "#7dbb9b"])
    figure, axes = plt.subplots(1, 2, figsize=(9.5, 5), sharey=True, layout="constrained")
    rows = [1, 2, 3, 4, 6, 8, 12, 16, 20]
    for panel, (title, effective) in zip(axes, WORTHS.items(), strict=True):
        best = np.zeros((len(rows), len(SIZES)), int)
        for y, epochs in enumerate(rows):
            for x, size in enumerate(SIZES):
                found = times(size, epochs, effective)
                best[y, x] = found["echo"] < found["cache"]
                gains = [
                    found["nothing"] / found[name] for name in (names[best[y, x]], "echo and cache")
                ]
                panel.text(x, y, "{:.1f}\n{:.1f}".format(*gains), ha="center", va="center")
        panel.imshow(best, cmap=colors, vmin=0, vmax=1, origin="lower", aspect="auto")
        panel.set_xticks(range(len(SIZES)), [f"{size:g}" for size in SIZES])
        panel.set_yticks(range(len(rows)), [str(each) for each in rows])
        panel.set_xlabel("decoded data / memory")
        panel.set_title(title, fontsize=9)
    axes[0].set_ylabel("epochs")
    handles = [plt.Rectangle((0, 0), 1, 1, color=colors(i)) for i in range(2)]
    figure.legend(
        handles,
        [f"{name} gains more alone (upper number; lower: both)" for name in names],
        loc="outside lower center",
        ncols=2,
        frameon=False,
    )
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else {})


class Cached:
    """A source that sleeps for each item but for those that its cache holds."""

    def __init__(self, items: int, kept: int, seconds: float) -> None:
        self.items, self.kept, self.seconds = items, kept, seconds
        self.cache: set[int] = set()

    def __iter__(self) -> Iterator[np.ndarray]:
        """Yield the items, slow and quick ones mixed."""
        for number in np.random.default_rng(0).permutation(self.items):
            if number not in self.cache:
                time.sleep(self.seconds)
                if len(self.cache) < self.kept:
                    self.cache.add(int(number))
            yield np.zeros(8, np.float32)


def measure(step: float = 20e-3, rows: int = 8, items: int = 320) -> None:
    """Print measured times of some cells over those of the map."""
    for size, epochs, factor in ((0.5, 4, 1), (2, 4, 1), (2, 4, 3), (20, 1, 6), (0.5, 2, 4)):
        source = Cached(items, int(items / size), RATIO * step / rows)
        loader = pyecho.EchoLoader(
            source, factor, batch_size=rows, shuffle_buffer=2 * rows, epochs=epochs
        )
        begun = time.perf_counter()
        for _ in range(epochs):
            for _ in loader:
                time.sleep(step)
        took = (time.perf_counter() - begun) / (items * step / rows)
        misses = max(0.0, 1 - 1 / size) * RATIO
        expected = max(RATIO, factor) + (epochs - 1) * max(misses, factor)
        cell = f"data / memory {size:g}, {epochs} epochs, e = {factor}"
        print(f"{cell}: {took / expected:.2f} of the map")


def main(arguments: list[str]) -> None:
    """Draw, and measure if asked to."""
    parser = new_parser("worth.py caching", __doc__)
    parser.add_argument("--measure", action="store_true", help="with real loaders, too (a minute)")
    options = parser.parse_args(arguments)
    make_output(options)
    draw(options.output / "caching.svg")
    print(options.output / "caching.svg")
    if options.measure:
        measure()
