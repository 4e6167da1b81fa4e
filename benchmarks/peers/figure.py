"""One figure of all workloads: a panel each, a bar for each contestant."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from peers.measuring import Outcome, Result
from pyecho.bench.formatting import number

OURS, THEIRS, LIMITS = "#0b6e4f", "#9aa5b1", "#d9a441"
BAR_INCHES = 0.27


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
            figsize=(9, BAR_INCHES * sum(heights)),
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
    results = [result for result in outcome.results.values() if result.rate is not None]
    return sorted(results, key=lambda result: result.rate.median if result.rate else 0.0)


def _panel(axis: Any, outcome: Outcome, results: list[Result]) -> None:
    for place, result in enumerate(results):
        rate = result.rate
        assert rate is not None
        axis.barh(
            place,
            rate.median,
            color=_colour(result),
            xerr=[[rate.median - rate.low], [rate.high - rate.median]],
            error_kw={"lw": 0.8, "ecolor": "#444444"},
        )
        axis.annotate(
            number(rate.median),
            (rate.high, place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=7.5,
        )
    axis.set_yticks(range(len(results)), [result.contestant.title for result in results])
    for label, result in zip(axis.get_yticklabels(), results, strict=True):
        label.set_fontweight("bold" if _colour(result) == OURS else "normal")
    axis.set_ylim(-0.7, len(results) - 0.3)
    axis.set_xscale("log")
    low = min(result.rate.low for result in results if result.rate)
    high = max(result.rate.high for result in results if result.rate)
    axis.set_xlim(low / 3, high * 3)
    axis.set_title(outcome.work.title, loc="left", fontsize=10)
    what = "batches" if outcome.work.kind == "batches" else "examples"
    axis.set_xlabel(f"{what} emitted in a second (logarithmic; longer is faster)", fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)


def _colour(result: Result) -> str:
    if result.contestant.limit:
        return LIMITS
    return OURS if result.contestant.package == "pyecho" else THEIRS
