"""Repeats of text want stronger weight decay: is it so here?

A small network predicts the next byte of Python's standard library from the 12 before it. Every run
makes as many steps; the examples are fewer, and each is used 1, 8 or 32 times (`EchoLoader`,
with a pool of all of them). AdamW with weight decays from 0 to 3; its default is 0.01. Prints the
held-out loss of each, and draws it as weight-decay.svg.
"""

from __future__ import annotations

import statistics
from functools import cache
from pathlib import Path

import numpy as np
import torch
from common.command import add_seeds, make_output, new_parser, write_results
from common.runs import results_of
from paper.data import read_windows, text_files
from torch import nn

import pyecho

CONTEXT, USES, BATCH, RATE = 12, 200_000, 128, 3e-3
REPEATS = (1, 8, 32)
DECAYS = (0, 0.001, 0.01, 0.1, 0.3, 1.0, 3.0)


@cache
def windows() -> tuple[np.ndarray, torch.Tensor]:
    """Return text to train on, and text to test with."""
    files, held_out = text_files(None)
    test = torch.from_numpy(read_windows(held_out, CONTEXT + 1, 20_000, seed=0)).long()
    return read_windows(files, CONTEXT + 1, USES, seed=0), test


def loss_of(repeats: int, decay: float, seed: int) -> float:
    """Train, and return the held-out loss in nats per byte."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    train, test = windows()
    net = nn.Sequential(
        nn.Embedding(256, 16), nn.Flatten(), nn.Linear(16 * CONTEXT, 256), nn.ReLU()
    ).append(nn.Linear(256, 256))
    optimizer = torch.optim.AdamW(net.parameters(), lr=RATE, weight_decay=decay)
    examples = train[np.random.default_rng(seed).permutation(len(train))[: USES // repeats]]
    loader = pyecho.EchoLoader(
        examples, repeats, batch_size=BATCH, shuffle_buffer=len(examples), seed=seed
    )
    for batch in loader:
        text = torch.from_numpy(batch).long()
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(text[:, :-1]), text[:, -1]).backward()
        optimizer.step()
    with torch.no_grad():
        return float(nn.functional.cross_entropy(net(test[:, :-1]), test[:, -1]))


def draw(found: dict[int, dict[float, list[float]]], path: Path) -> None:
    """Draw the losses, with the best decay of each number of repeats marked."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"svg.hashsalt": "pyecho", "font.size": 9})
    figure, panel = plt.subplots(figsize=(6, 3), layout="constrained")
    for shade, (repeats, losses) in zip(
        np.linspace(0.75, 0, len(found)), found.items(), strict=True
    ):
        middle = [statistics.median(each) for each in losses.values()]
        color = (shade, 0.35 + shade / 2, shade)
        panel.plot(
            list(losses),
            middle,
            color=color,
            label=f"{repeats} use{'s' if repeats > 1 else ''} each",
            marker=".",
        )
        for decay, each in losses.items():
            panel.plot([decay] * len(each), each, ".", color=color, markersize=3)
        best = int(np.argmin(middle))
        panel.plot(
            list(losses)[best], middle[best], "o", color=color, fillstyle="none", markersize=10
        )
    panel.set_xscale("symlog", linthresh=DECAYS[1])
    panel.set_xlabel("weight decay (circles: best)")
    panel.set_ylabel("held-out nats per byte")
    panel.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else {})


def main(arguments: list[str]) -> None:
    """Measure, print and draw."""
    parser = new_parser("worth.py weight_decay", __doc__)
    add_seeds(parser, 3)
    options = parser.parse_args(arguments)
    make_output(options)
    seeds = range(options.seeds)
    jobs = [(repeats, decay, seed) for repeats in REPEATS for decay in DECAYS for seed in seeds]
    runs = results_of(loss_of, jobs, options.output, processes=2)
    found = {
        repeats: {decay: [runs[repeats, decay, seed] for seed in seeds] for decay in DECAYS}
        for repeats in REPEATS
    }
    for repeats, losses in found.items():
        cells = (f"{decay:g}: {np.median(each):.3f}" for decay, each in losses.items())
        print(f"{repeats} uses of {USES // repeats:,} examples, loss by weight decay: ", *cells)
    write_results(options.output, "weight-decay", losses=found)
    draw(found, options.output / "weight-decay.svg")
