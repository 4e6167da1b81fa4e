"""Draws trace.png: a part of a trace of the demonstration, without echoing and with it.

pyecho demo --factors 1,5 --seeds 1 --trace run.json
python docs/figures/trace.py run.json 1 5        # the factors of the runs, in their order
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Patch

SHOWN_SECONDS = 0.6
LANES = ("pyecho-feeder", "consumer")
COLOURS = {
    "source": "#6b7f99",
    "put": "#2f3e52",
    "plan": "#2f3e52",
    "gather": "#d98a29",
    "wait for room": "#d8d8d8",
    "wait": "#f3d9d5",
    "step": "#2a6f4e",
}


def main() -> None:
    """Write the picture beside this file."""
    events = json.loads(Path(sys.argv[1]).read_text())["traceEvents"]
    factors = sys.argv[2:]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    spans = [e for e in events if e["ph"] == "X"]
    figure, panels = plt.subplots(len(factors), 1, figsize=(9, 3.6), layout="constrained")
    for axes, factor, (begin, end) in zip(panels, factors, runs(spans, names), strict=True):
        middle = (begin + end) / 2
        draw(axes, spans, names, middle, middle + SHOWN_SECONDS * 1e6)
        axes.set_title(f"e = {factor}", loc="left", fontsize=10)
    panels[-1].set_xlabel("milliseconds")
    keys = [Patch(color=colour, label=name) for name, colour in COLOURS.items()]
    figure.legend(handles=keys, loc="outside lower center", ncols=len(keys), fontsize=8)
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=110)


def runs(spans: list[dict[str, Any]], names: dict[int, str]) -> list[tuple[float, float]]:
    """Return the time of each run: of each loader, and so of each feeder."""
    times: dict[int, list[float]] = {}
    for span in spans:
        if names[span["tid"]] == LANES[0]:
            times.setdefault(span["tid"], []).append(span["ts"])
    return [(min(found), max(found)) for found in times.values()]


def draw(
    axes: Axes, spans: list[dict[str, Any]], names: dict[int, str], begin: float, end: float
) -> None:
    """Draw the spans of a time, each thread in a lane; inner ones over outer ones."""
    for span in spans:
        start, stop = max(begin, span["ts"]), min(end, span["ts"] + span["dur"])
        name = names[span["tid"]]
        if start < stop and name in LANES:
            lane = len(LANES) - 1 - LANES.index(name)
            left, width = (start - begin) / 1e3, (stop - start) / 1e3
            edge = "white" if span["name"] == "step" else "none"
            colour = COLOURS[span["name"]]
            axes.barh(lane, width, left=left, height=0.7, color=colour, edgecolor=edge)
    axes.set_yticks(range(len(LANES)), [name.removeprefix("pyecho-") for name in LANES[::-1]])
    axes.set_xlim(0, (end - begin) / 1e3)
    axes.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    main()
