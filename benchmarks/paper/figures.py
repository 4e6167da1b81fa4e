"""The figures, each with the paper's numbers in the same axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from paper import reference
from paper.experiments import FIGURES, WORKLOADS
from paper.summary import UNITS, Mark
from pyecho.bench.row import number
from pyecho.bench.sampling import Sample
from pyecho.demo.report import allowed_speedup

COLORS = {
    "baseline": "0.45",
    "batch": "tab:blue",
    "after": "tab:green",
    "before": "tab:purple",
    "adaptive": "tab:red",
}
PAPER = "tab:orange"
SHADES = ("tab:purple", "tab:cyan", "tab:red")


def draw(marks: Sequence[Mark], folder: Path, stem: str) -> dict[str, Path]:
    """Draw every figure that has data; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {}
    for name in FIGURES:
        chosen = [mark for mark in marks if mark.entry.figure == name]
        if not any(mark.measured for mark in chosen):
            continue
        drawers: dict[str, Callable[[Figure, str, Sequence[Mark]], None]] = {
            "3": _bars,
            "4": _speedups,
            "drift": _bars,
            "quality": _bars,
        }
        figure = Figure(layout="constrained")
        drawers.get(name, _lines)(figure, name, chosen)
        runs = max(mark.runs for mark in chosen)
        if runs > 1:
            figure.supxlabel(
                f"medians of {runs} seeds, bars from the lowest to the highest",
                fontsize=8,
                color="0.4",
            )
        drawn[name] = folder / f"{stem}-{'fig' * name.isdecimal()}{name}.png"
        figure.savefig(drawn[name], dpi=110)
    return drawn


def _series(marks: Sequence[Mark]) -> dict[str, list[Mark]]:
    found: dict[str, list[Mark]] = {}
    for mark in marks:
        found.setdefault(mark.entry.series, []).append(mark)
    return found


def _bare(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="0.92")
    axes.set_axisbelow(True)


def _error(sample: Sample) -> list[list[float]]:
    return [[sample.median - sample.low], [sample.high - sample.median]]


def _bars(figure: Figure, name: str, marks: Sequence[Mark]) -> None:
    """Draw a bar for each variant, one pair of axes for each workload."""
    series = _series(marks)
    figure.set_size_inches(5.8 * len(series), 4.6)
    for column, (workload, chosen) in enumerate(series.items(), 1):
        axes = figure.add_subplot(1, len(series), column)
        _bare(axes)
        for mark in chosen:
            x, of = mark.entry.x, mark.entry.condition
            if mark.measured is None:
                _missing(axes, x)
                continue
            color = COLORS["baseline" if of.factor == 1 else of.variant]
            axes.bar(x, mark.measured.median, 0.7, color=color, alpha=0.85)
            axes.errorbar(x, mark.measured.median, _error(mark.measured), color="0.1", capsize=5)
            axes.annotate(
                number(mark.measured.median),
                (x, 0),
                xytext=(0, 4),
                textcoords="offset points",
                ha="center",
                color="white",
                weight="bold",
            )
        if name == "3":
            _paper_fractions(axes, workload, chosen)
        axes.set_xticks(
            [mark.entry.x for mark in chosen],
            [mark.name.replace("echoing ", "echoing\n") for mark in chosen],
            fontsize=8,
        )
        label = UNITS[name]
        if name == "quality":
            label = f"{WORKLOADS[workload].held_out_unit} {label}"
        axes.set(ylabel=label, ylim=(0, None))
        e = max(mark.entry.condition.factor for mark in chosen)
        about = "R between 1 and 8" if name == "drift" else f"e = {e}"
        axes.set_title(f"{_title(workload)}, {about}", loc="left")


def _missing(axes: Axes, x: float) -> None:
    """Mark a condition that has not reached the target, or whose baseline has not."""
    axes.axvline(x, color="none")  # keeps the place in view
    axes.annotate(
        "not reached",
        (x, 0.02),
        xycoords=axes.get_xaxis_transform(),
        rotation=90,
        ha="center",
        va="bottom",
        fontsize=8,
    )


def _title(workload: str) -> str:
    return {
        "fashion": "Fashion-MNIST, 1,024 images",
        "fashion-more": "Fashion-MNIST, 4,096 images",
        "text": "Python sources, Transformer",
    }[workload]


def _paper_fractions(axes: Axes, workload: str, marks: Sequence[Mark]) -> None:
    """Mark the paper's results for each of its own workloads of this kind."""
    shapes = dict(zip(reference.FRACTIONS, "sD^os", strict=True))
    for paper, fractions in reference.FRACTIONS.items():
        if ("Transformer" in paper) != (workload == "text"):
            continue
        points = [
            (mark.entry.x, fractions[mark.entry.condition.variant])
            for mark in marks
            if mark.entry.condition.factor > 1
        ]
        axes.plot(
            *zip(*points, strict=True),
            linestyle="",
            marker=shapes[paper],
            color=PAPER,
            markeredgecolor="white",
            markersize=8,
            label=f"paper: {paper}",
        )
    axes.axhline(0.5, color="0.45", linestyle="--", linewidth=1)
    axes.annotate("ideal", (axes.get_xlim()[0], 0.5), xytext=(2, 2), textcoords="offset points")
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.12), frameon=False)


def _speedups(figure: Figure, name: str, marks: Sequence[Mark]) -> None:
    """Draw speedups and fresh examples against e, with the bound of Eq. 1."""
    figure.set_size_inches(10.4, 4.4)
    factors = [mark.entry.x for mark in marks]
    found = [(mark.entry.x, mark) for mark in marks if mark.measured is not None]
    ratio = found[-1][1].more["R"].median
    panels = (
        ("measured", reference.SPEEDUPS, "speedup in seconds to the target"),
        ("fewer", reference.REDUCTIONS, "times fewer fresh examples to the target"),
    )
    for column, (value, paper, label) in enumerate(panels, 1):
        axes = figure.add_subplot(1, 2, column)
        _bare(axes)
        grid = [1 + 0.05 * step for step in range(round((max(factors) - 1) / 0.05) + 1)]
        bound = ratio if value == "measured" else float("inf")
        allowed = [factor if bound > 1e9 else allowed_speedup(factor, bound) for factor in grid]
        text = f"Eq. 1 at R = {bound:.1f}" if value == "measured" else "each use worth a fresh one"
        axes.plot(grid, allowed, color="0.45", linestyle="--", linewidth=1, label=text)
        axes.plot(
            list(paper),
            list(paper.values()),
            color=PAPER,
            marker="s",
            markerfacecolor="white",
            label="paper: ResNet-50 on ImageNet, R about 6",
        )
        samples = [(x, m.measured if value == "measured" else m.more[value]) for x, m in found]
        _curve(axes, [(x, s) for x, s in samples if s], COLORS["before"], "Fashion-MNIST")
        for mark in marks:
            if mark.measured is None:
                _missing(axes, mark.entry.x)
        axes.set(xlabel="echo factor e", ylabel=label, ylim=(0, None))
        axes.set_xticks(factors)
        axes.legend(fontsize=8, loc="lower right")
        axes.set_title(f"{_title('fashion-more')}, over a slow network", loc="left")


def _curve(axes: Axes, points: Sequence[tuple[float, Sample]], color: str, label: str) -> None:
    axes.errorbar(
        [x for x, _ in points],
        [sample.median for _, sample in points],
        [
            [sample.median - sample.low for _, sample in points],
            [sample.high - sample.median for _, sample in points],
        ],
        color=color,
        marker="o",
        capsize=4,
        linewidth=2,
        label=label,
        zorder=3,
    )


def _lines(figure: Figure, name: str, marks: Sequence[Mark]) -> None:
    """Draw a line for each series of ours and of the paper's, over a logarithmic axis."""
    figure.set_size_inches(6.4, 4.6)
    axes = figure.add_subplot()
    _bare(axes)
    axes.set_xscale("log", base=2 if name != "7" else 10)
    ticks: set[float] = set()
    for (series, chosen), shade in zip(_series(marks).items(), SHADES, strict=False):
        color = COLORS.get(series, shade)
        points = [(mark.entry.x, mark.measured) for mark in chosen if mark.measured is not None]
        for mark in chosen:
            if mark.measured is None:
                _missing(axes, mark.entry.x)
        if not points:
            continue
        label = {"batch": "batch echoing", "before": "example echoing"}.get(series, series)
        _curve(axes, points, color, label)
        paper = _paper_series(name, series, chosen)
        axes.plot(
            list(paper),
            list(paper.values()),
            color=color,
            linestyle=":",
            marker="s",
            markerfacecolor="white",
            label=f"paper: {_paper_label(name, series, chosen)}",
        )
        ticks |= {*paper, *(x for x, _ in points)}
    if name != "7":  # there, the paper's buffers are not quite powers of ten
        axes.xaxis.set_major_locator(FixedLocator(sorted(ticks)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    labels = {
        "5": "echo factor e",
        "6": "batch size, as a multiple of ours in the other figures (paper: of 1024)",
        "7": "shuffle buffer, in batches",
    }
    axes.set(xlabel=labels[name], ylabel=UNITS[name], ylim=(0, None))
    if name in ("6", "7"):
        axes.axhline(0.5, color="0.45", linestyle="--", linewidth=1)
    axes.set_title(f"Python sources, Transformer{'' if name == '5' else ', e = 2'}", loc="left")
    axes.legend(fontsize=8)


def _paper_series(name: str, series: str, marks: Sequence[Mark]) -> dict[float, float]:
    if name == "5":
        return {float(x): y for x, y in reference.UPPER_BOUND[_batches(marks)].items()}
    points = reference.BATCH_SIZES[series] if name == "6" else reference.BUFFERS[series]
    return {float(x): y for x, y in points.items()}


def _batches(marks: Sequence[Mark]) -> int:
    from paper.text import Text

    return marks[0].entry.condition.batch_size // Text.batch_size


def _paper_label(name: str, series: str, marks: Sequence[Mark]) -> str:
    if name == "5":
        return f"LM1B, batch {1024 * _batches(marks)}"
    return f"LM1B, {'batch' if series == 'batch' else 'example'} echoing"
