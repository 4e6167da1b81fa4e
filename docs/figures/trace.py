"""Draws trace.png: when the consumer of the demonstration steps, without echoing and with it.

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

SHOWN_SECONDS = 1.5
STEP, WAIT = "#2a6f4e", "#f3d9d5"


def main() -> None:
    """Write the picture beside this file."""
    events = json.loads(Path(sys.argv[1]).read_text())["traceEvents"]
    factors = sys.argv[2:]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    spans = [e for e in events if e["ph"] == "X"]
    begins = dict[int, float]()  # of each run, by its feeder
    for span in spans:
        if names[span["tid"]] == "pyecho-feeder":
            begins.setdefault(span["tid"], span["ts"])
    figure, panels = plt.subplots(
        len(factors), 1, figsize=(9, 2.6), sharex=True, layout="constrained"
    )
    for axes, factor, begin in zip(panels, factors, begins.values(), strict=True):
        shares = [share for span in spans if (share := part(span, begin))]
        busy = sum(length for name, _, length in shares if name == "step") / SHOWN_SECONDS
        for name, start, length in shares:
            colour, edge = (STEP, "white") if name == "step" else (WAIT, "none")
            axes.barh(0, length, left=start, color=colour, edgecolor=edge, linewidth=0.5)
        axes.set_title(
            f"e = {factor}: training for {busy:.0%} of the time", loc="left", fontsize=11
        )
        axes.set_yticks([])
        axes.set_xlim(0, SHOWN_SECONDS)
        axes.spines[["top", "right", "left"]].set_visible(False)
    panels[-1].set_xlabel("seconds from the beginning of the run; green: a step, light: it waits")
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=110)


def part(span: dict[str, Any], begin: float) -> tuple[str, float, float] | None:
    """Return name, start and length in seconds of what is shown of a span of the consumer."""
    start, stop = (span["ts"] - begin) / 1e6, (span["ts"] + span["dur"] - begin) / 1e6
    start, stop = max(0, start), min(SHOWN_SECONDS, stop)
    shown = span["name"] in ("wait", "step") and start < stop
    return (span["name"], start, stop - start) if shown else None


if __name__ == "__main__":
    main()
