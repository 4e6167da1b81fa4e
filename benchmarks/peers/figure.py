"""One figure of all workloads: a panel each, a line for each contestant."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from peers.measuring import Outcome, Result
from peers.roster import DISTRIBUTION, PYECHO
from pyecho.bench.row import number

OURS, THEIRS, LIMITS = "#0b6e4f", "#9aa5b1", "#d9a441"
LINE_INCHES = 0.27
MARGIN_INCHES = 1.2


def draw(outcomes: Sequence[Outcome], title: str, path: Path) -> bool:
    """Write the figure; return False where matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.patches import Patch

    panels = [(outcome, _sorted(outcome)) for outcome in outcomes]
    panels = [(outcome, results) for outcome, results in panels if results]
    if not panels:
        return False
    heights = [len(results) + 2.0 for _, results in panels]
    # The same input gives the same file, and text stays text.
    with pyplot.rc_context({"svg.hashsalt": "pyecho", "svg.fonttype": "none", "font.size": 9}):
        figure, axes = pyplot.subplots(
            len(panels),
            1,
            figsize=(9, LINE_INCHES * sum(heights) + MARGIN_INCHES),
            gridspec_kw={"height_ratios": heights},
            layout="constrained",
            squeeze=False,
        )
        for axis, (outcome, results) in zip(axes[:, 0], panels, strict=True):
            _panel(axis, outcome, results)
        figure.suptitle(title, fontsize=11)
        kinds = {"pyecho": OURS, "peers": THEIRS, "limits": LIMITS}
        figure.legend(
            [Patch(color=colour) for colour in kinds.values()],
            list(kinds),
            loc="outside lower center",
            ncols=len(kinds),
            frameon=False,
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
        pyplot.close(figure)
    return True


def _sorted(outcome: Outcome) -> list[Result]:
    if outcome.rate(PYECHO) is None:
        return []
    results = [result for result in outcome.results.values() if result.rate is not None]
    return sorted(results, key=lambda result: result.rate.median if result.rate else 0.0)


def _panel(axis: Any, outcome: Outcome, results: list[Result]) -> None:
    labels = []
    for place, result in enumerate(results):
        rate, ratio = result.rate, outcome.faster(PYECHO, result.contestant.name)
        assert rate is not None
        assert ratio is not None
        axis.errorbar(
            ratio.median,
            place,
            xerr=[[ratio.median - ratio.low], [ratio.high - ratio.median]],
            color=_colour(result),
            marker="o",
            capsize=3,
        )
        axis.annotate(
            number(ratio.median),
            (ratio.high, place),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=7.5,
        )
        labels.append(f"{result.contestant.title}, {number(rate.median)}/s")
    axis.set_yticks(range(len(results)), labels)
    for label, result in zip(axis.get_yticklabels(), results, strict=True):
        label.set_fontweight("bold" if _colour(result) == OURS else "normal")
    axis.set_ylim(-0.7, len(results) - 0.3)
    axis.axvline(1, color="0.7", linewidth=1, zorder=0)
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    axis.set_title(outcome.work.title, loc="left", fontsize=10)
    axis.set_xlabel("how many times as fast pyecho is (median, lowest, highest)", fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)


def _colour(result: Result) -> str:
    if result.contestant.limit:
        return LIMITS
    return OURS if result.contestant.package == DISTRIBUTION else THEIRS
