"""Draws cuda_timeline.svg: who does what, when, while batches go to a device.

A schematic, with made-up durations: python docs/cuda_timeline.py
"""

from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

GATHER, COPY, STEP = 2.0, 1.6, 3.0
LANES = ["native thread", "pyecho's stream", "your stream", "your thread"]
COLOURS = ["#4c78a8", "#54a24b", "#e45756", "#e45756"]


def main() -> None:
    """Write the picture beside this file."""
    plt.rcParams["svg.hashsalt"] = "pyecho"
    figure, axes = plt.subplots(figsize=(9.5, 2.9))
    top = len(LANES) - 1

    def bar(lane: str, start: float, length: float, text: str) -> None:
        row = LANES.index(lane)
        axes.barh(top - row, length, left=start, height=0.55, color=COLOURS[row], edgecolor="white")
        axes.text(start + length / 2, top - row, text, ha="center", va="center", color="white")

    def arrow(lane: str, start: float, to_lane: str, end: float) -> None:
        rise, fall = top - LANES.index(lane), top - LANES.index(to_lane)
        side = 0.28 if rise > fall else -0.28
        style = {"arrowstyle": "-|>", "color": "#555555", "linewidth": 1.0}
        axes.annotate("", (end, fall + side), (start, rise - side), arrowprops=style)

    step_end = 0.0
    for number in range(4):
        gathered = GATHER * (number + 1)
        bar("native thread", GATHER * number, GATHER, f"assemble {number}")
        copied = gathered + 0.2 + COPY
        bar("pyecho's stream", gathered + 0.2, COPY, f"copy {number}")
        arrow("native thread", gathered - 0.05, "pyecho's stream", gathered + 0.25)
        taken = max(gathered + 0.25, step_end - 2.2 if number else 0.0)
        bar("your thread", taken, 0.5, f"{number}")
        step = max(copied, step_end)
        bar("your stream", step, STEP, f"step {number}")
        arrow("pyecho's stream", copied, "your stream", step + 0.05)
        arrow("your thread", taken + 0.4, "your stream", step + 0.15)
        step_end = step + STEP
    axes.set_yticks(range(len(LANES)), LANES[::-1])
    axes.set_xticks([])
    axes.set_xlabel("time")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(Path(__file__).with_suffix(".svg"), metadata={"Date": None})


if __name__ == "__main__":
    main()
