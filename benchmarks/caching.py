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
Each strategy has its best e. Writes the map as caching.svg. Nothing is measured.
"""

from __future__ import annotations

from collections.abc import Callable

import matplotlib
import numpy as np
from common import new_parser, save_figure
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

RATIO = 6.0
SIZES = np.array([0.5, 0.75, 1, 1.25, 1.5, 2, 3, 5, 10, 20])
EPOCHS = (1, 2, 3, 4, 6, 8, 12, 16, 20)
FACTORS = np.linspace(1, 12, 45)
Effective = Callable[[np.ndarray], np.ndarray]
WORTHS: dict[str, Effective] = {
    "repeats worth 0.8, 0.6, 0.45, ...": lambda e: 1 + 0.8 * (1 - 0.75 ** (e - 1)) / 0.25,
    "repeats worth 0.5, 0.25, 0.12, ...": lambda e: 2 - 0.5 ** (e - 1),
}
COLORS = {"cache": "#6b7f99", "echo": "#7dbb9b"}


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


def drawn() -> Figure:
    """Draw which of cache and echo gains more, how much, and both together."""
    matplotlib.rcParams.update({"svg.fonttype": "none", "font.size": 8})
    figure = Figure(figsize=(9.5, 5), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for panel, (title, effective) in zip(axes, WORTHS.items(), strict=True):
        best = np.zeros((len(EPOCHS), len(SIZES)), int)
        for (y, x), _ in np.ndenumerate(best):
            found = times(SIZES[x], EPOCHS[y], effective)
            best[y, x] = found["echo"] < found["cache"]
            alone = min(found["echo"], found["cache"])
            gains = [found["nothing"] / each for each in (alone, found["echo and cache"])]
            panel.text(x, y, "{:.1f}\n{:.1f}".format(*gains), ha="center", va="center")
        cmap = ListedColormap(list(COLORS.values()))
        panel.imshow(best, cmap=cmap, vmin=0, vmax=1, origin="lower", aspect="auto")
        panel.set_xticks(range(len(SIZES)), [f"{size:g}" for size in SIZES])
        panel.set_yticks(range(len(EPOCHS)), [str(each) for each in EPOCHS])
        panel.set_xlabel("decoded data / memory")
        panel.set_title(title, fontsize=9)
    axes[0].set_ylabel("epochs")
    figure.legend(
        [Patch(color=color) for color in COLORS.values()],
        [f"{name} gains more alone (upper number; lower: both)" for name in COLORS],
        loc="outside lower center",
        ncols=2,
        frameon=False,
    )
    return figure


if __name__ == "__main__":
    options = new_parser(__doc__).parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    save_figure(drawn(), options.output / "caching.svg")
