"""One figure of all ratios: a panel for each section."""

from __future__ import annotations

from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

from common.report import Report
from pyecho.bench.row import number


def write_figure(report: Report, path: Path) -> bool:
    """Draw the median and the range of every ratio. Return False if there is none."""
    panels = {
        section: [(row, ratio) for row in rows if (ratio := row.compared()) is not None]
        for section, rows in report.sections.items()
    }
    panels = {section: rows for section, rows in panels.items() if rows}
    if not panels:
        return False
    heights = [len(rows) + 1.5 for rows in panels.values()]
    figure = Figure(figsize=(10, 0.34 * sum(heights) + 1), layout="constrained")
    for axes, (section, rows) in zip(
        figure.subplots(len(panels), 1, height_ratios=heights, squeeze=False)[:, 0],
        panels.items(),
        strict=True,
    ):
        for height, (row, ratio) in enumerate(reversed(rows)):
            axes.plot([ratio.low, ratio.high], [height, height], color="0.65", linewidth=3)
            axes.plot(ratio.median, height, "o", color="C0", markersize=4)
            text = number(ratio.median) + (f"  ({row.target})" if row.target else "")
            axes.annotate(
                text,
                (ratio.high, height),
                (6, 0),
                textcoords="offset points",
                va="center",
                fontsize=7,
            )
        labels = [f"{row.what} | {row.limit_name}" for row, _ in reversed(rows)]
        axes.set_yticks(range(len(rows)), labels, fontsize=7)
        axes.axvline(1.0, color="0.3", linewidth=0.8)
        axes.set_xscale("log")
        low = min(1.0, *(ratio.low for _, ratio in rows))
        high = max(1.0, *(ratio.high for _, ratio in rows))
        span = max(2.0, high / low)
        axes.set_xlim(low / span**0.05, high * span**0.6)  # room for the text
        axes.margins(y=0.1)
        axes.set_title(section, fontsize=9, loc="left")
        axes.tick_params(axis="x", which="both", labelsize=7)
    figure.suptitle(
        f"{report.title}, {report.facts['cores']} cores, {report.facts['date']}: "
        f"ratios to the limits in the same run\n"
        f"commit {report.facts.get('commit') or 'unknown'}, {report.runs} "
        f"run{'s' if report.runs > 1 else ''} of {report.facts['rounds']} rounds",
        fontsize=10,
    )
    with rc_context({"svg.fonttype": "none"}):  # text stays text: a tenth of the size
        figure.savefig(path)
    return True
