"""Draws idle.svg, costs.svg and ops.svg, and makes demo.png smaller: figures of README and docs.

    pyecho demo --output docs/figures/demo.png
    python docs/figures/draw.py                # needs matplotlib and pillow
    python docs/figures/draw.py --suffix .png  # to look at them

idle.svg is a schematic. costs.svg shows the newest benchmarks/results/overhead-*.json, which
`make bench BENCH_ARGS="--output benchmarks/results"` writes, ops.svg the newest ops-*.json of
`python benchmarks/ops.py --output benchmarks/results`. demo.png is reduced to 256 colours, a
third of its size.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from PIL import Image

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parents[1] / "benchmarks" / "results"
SOURCE, FRESH, REPEAT, IDLE = "#6b7f99", "#2a6f4e", "#7dbb9b", "#f3d9d5"


def main() -> None:
    """Write the figures beside this file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--suffix", default=".svg")
    suffix = parser.parse_args().suffix
    plt.rcParams.update({"svg.hashsalt": "pyecho", "font.size": 10})
    metadata = {"Date": None} if suffix == ".svg" else {}
    figures = {
        "idle": idle(),
        "costs": costs(newest("overhead-*.json")),
        "ops": operations(newest("ops-[!t]*.json")),
    }
    for name, figure in figures.items():
        figure.savefig(HERE / f"{name}{suffix}", metadata=metadata, dpi=110)
    reduce_colours(HERE / "demo.png")


def reduce_colours(path: Path) -> None:
    """Store a PNG with a palette, unless it has one."""
    image = Image.open(path)
    if image.mode != "P":
        reduced = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        reduced.save(path, optimize=True)


# ---------------------------------------------------------------- the idle accelerator

R = 4  # t_up / t_down
BATCHES = 5


def idle() -> plt.Figure:
    """Draw who is busy when, without echoing and with e = R."""
    figure, panels = plt.subplots(2, 1, figsize=(9, 3.7), sharex=True, layout="constrained")
    for axes, factor in zip(panels, (1, R), strict=True):
        timeline(axes, factor)
    panels[0].set_title("Without echoing: the accelerator waits for data", loc="left", fontsize=11)
    echoed = f"each batch is used {R} times while the next one is read (light: repeats)"
    panels[1].set_title(f"With e = R = {R}: {echoed}", loc="left", fontsize=11)
    panels[1].set_xlabel("time  \N{RIGHTWARDS ARROW}", loc="right")
    return figure


def timeline(axes: Axes, factor: int) -> None:
    """Draw the source above the accelerator, which uses each batch `factor` times."""
    for batch in range(BATCHES):
        bar(axes, 1, batch * R, R, SOURCE, f"read batch {batch + 1}")
    bar(axes, 0, 0, R, IDLE, "idle", "#a04030")
    for batch in range(BATCHES - 1):
        arrival = (batch + 1) * R
        for use in range(factor):
            colour, ink = (REPEAT, "#10402a") if use else (FRESH, "white")
            bar(axes, 0, arrival + use, 1, colour, f"{batch + 1}", ink)
        if factor < R:
            bar(axes, 0, arrival + factor, R - factor, IDLE, "idle", "#a04030")
    steps = (BATCHES - 1) * factor
    axes.text(BATCHES * R + 0.3, 0, f"{steps} steps", va="center", weight="bold")
    axes.set_yticks([1, 0], ["source", "accelerator"])
    axes.set_xticks([])
    axes.set_xlim(0, BATCHES * R + 2.4)
    axes.set_ylim(-0.45, 1.45)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def bar(
    axes: Axes, lane: int, start: float, length: float, colour: str, text: str, ink: str = "white"
) -> None:
    """Draw one thing that happens."""
    axes.barh(lane, length, left=start, height=0.74, color=colour, edgecolor="white", linewidth=1.5)
    axes.text(start + length / 2, lane, text, ha="center", va="center", color=ink, fontsize=9)


# ---------------------------------------------------------------- what echoing costs

SHOWN = (
    # (label, start of the row's name, is the ratio one of speeds?)
    ("repeat of a batch\nagainst a bare generator", "one repeat", False),
    ("150 KB example\nagainst memcpy, 1 thread", "gather 150,528 B", True),
    ("3 KB example\nagainst memcpy, 1 thread", "gather 3,072 B", True),
    ("256 B example\nagainst memcpy, 1 thread", "gather 256 B", True),
    ("pipeline, batch echoing\nagainst Eq. 1", "wall time, batch echoing, e = 5", False),
    ("pipeline, example echoing\nagainst Eq. 1", "wall time, example echoing, e = 5", False),
)


def newest(pattern: str) -> dict[str, Any]:
    """Return the results of the newest whole run of a suite."""
    paths = [path for path in RESULTS.glob(pattern) if "-partial" not in path.name]
    documents = [json.loads(path.read_text()) for path in paths]
    document: dict[str, Any] = max(documents, key=lambda document: document["facts"]["date"])
    return document


def costs(document: dict[str, Any]) -> plt.Figure:
    """Draw times as multiples of those of bare counterparts: less than 1 is faster."""
    figure, axes = plt.subplots(figsize=(9, 3.9), layout="constrained")
    for height, (_, what, of_speeds) in enumerate(SHOWN):
        row = find(document["rows"], what)
        ratio = row["ratio"]
        low, middle, high = ratio["min"], ratio["median"], ratio["max"]
        if of_speeds:
            low, middle, high = 1 / high, 1 / middle, 1 / low
        axes.barh(height, middle, height=0.6, color=FRESH if middle <= 1.05 else "#c98a3a")
        axes.plot([low, high], [height, height], color="0.2", linewidth=1.2)
        axes.text(max(high, 1) + 0.05, height, f"{middle:.2f}", va="center", fontsize=9)
    axes.axvline(1, color="0.2", linestyle="--", linewidth=1)
    axes.set_yticks(range(len(SHOWN)), [label for label, *_ in SHOWN], fontsize=9)
    axes.invert_yaxis()
    axes.set_xlim(0, axes.get_xlim()[1] * 1.25)
    axes.set_xlabel("time of pyecho over that of its counterpart (dashed): shorter is faster")
    axes.set_title(caption(document["facts"]), loc="left", fontsize=9, color="0.35")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def operations(document: dict[str, Any]) -> plt.Figure:
    """Draw how many images a core makes, with each tool."""
    rows = [row for row in document["rows"] if row["unit"] == "images/s and core"]
    rates = {"pyecho.ops": rows[0]["measured"]} | {row["limit_name"]: row["limit"] for row in rows}
    figure, axes = plt.subplots(figsize=(9, 1.9), layout="constrained")
    for height, rate in enumerate(rates.values()):
        axes.barh(height, rate["median"], height=0.6, color=SOURCE if height else FRESH)
        axes.plot([rate["min"], rate["max"]], [height, height], color="0.2", linewidth=1.2)
        axes.text(rate["max"] + 30, height, f"{rate['median']:,.0f}", va="center", fontsize=9)
    axes.set_yticks(range(len(rates)), list(rates), fontsize=9)
    axes.invert_yaxis()
    axes.set_xlabel("images for each second of a core, behind the same echo (e = 4)")
    axes.set_title(caption(document["facts"]), loc="left", fontsize=9, color="0.35")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def find(rows: list[dict[str, Any]], what: str) -> dict[str, Any]:
    """Return the first row whose name begins like this."""
    for row in rows:
        if row["what"].startswith(what):
            return row
    raise SystemExit(f"no row {what!r}: adapt SHOWN")


def caption(facts: dict[str, Any]) -> str:
    """Return where the numbers come from."""
    version = f"commit {facts['commit']}" if facts.get("commit") else f"pyecho {facts['pyecho']}"
    runs = facts.get("runs", 1)
    return (
        f"{facts['cpu']}, {facts['cores']} cores, {facts['date']}, {version}, "
        f"{runs} run{'s' if runs > 1 else ''} of {facts['rounds']} rounds: median, range"
    )


if __name__ == "__main__":
    main()
