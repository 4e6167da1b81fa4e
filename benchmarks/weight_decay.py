"""Repeats of text want stronger weight decay: is it so here?

A small network predicts the next byte of Python's standard library from the 12 before it. Every run
makes as many steps; the examples are fewer, and each is used 1, 8 or 32 times (`EchoLoader`,
with a pool of all of them). AdamW with weight decays from 0 to 3; its default is 0.01. Prints the
held-out loss of each, and draws it as weight-decay.svg.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from common import finish, new_parser, new_report, results_of, sample, save_figure
from matplotlib.figure import Figure
from paper.data import text_windows
from torch import nn

import pyecho
from pyecho.bench.row import Row
from pyecho.bench.sampling import Sample

CONTEXT, USES, QUICK_USES, TESTED, BATCH, RATE = 12, 200_000, 4096, 20_000, 128, 3e-3
REPEATS = (1, 8, 32)
DECAYS = (0, 0.001, 0.01, 0.1, 0.3, 1.0, 3.0)
Losses = dict[int, dict[float, Sample]]


@cache
def windows() -> tuple[np.ndarray, torch.Tensor]:
    """Return text to train on, and text to test with."""
    train, test = text_windows(CONTEXT + 1, USES, TESTED)
    return train, torch.from_numpy(test).long()


def loss_of(repeats: int, decay: float, seed: int, uses: int) -> float:
    """Train, and return the held-out loss in nats per byte."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    train, test = windows()
    net = nn.Sequential(
        nn.Embedding(256, 16), nn.Flatten(), nn.Linear(16 * CONTEXT, 256), nn.ReLU()
    ).append(nn.Linear(256, 256))
    optimizer = torch.optim.AdamW(net.parameters(), lr=RATE, weight_decay=decay)
    examples = train[np.random.default_rng(seed).permutation(len(train))[: uses // repeats]]
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


def drawn(found: Losses) -> Figure:
    """Draw the losses, with the best decay of each number of repeats marked."""
    figure = Figure(figsize=(6, 3), layout="constrained")
    panel = figure.subplots()
    for shade, (repeats, losses) in zip((0.75, 0.375, 0), found.items(), strict=True):
        color = (shade, 0.35 + shade / 2, shade)
        middle = {decay: each.median for decay, each in losses.items()}
        label = f"{repeats} use{'s' if repeats > 1 else ''} each"
        panel.plot(list(middle), list(middle.values()), ".-", color=color, label=label)
        for decay, each in losses.items():
            panel.plot([decay] * len(each.values), each.values, ".", color=color, markersize=3)
        best = min(middle, key=middle.__getitem__)
        panel.plot(best, middle[best], "o", color=color, fillstyle="none", markersize=10)
    panel.set_xscale("symlog", linthresh=DECAYS[1])
    panel.set(xlabel="weight decay (circles: best)", ylabel="held-out nats per byte")
    panel.legend(frameon=False)
    return figure


if __name__ == "__main__":
    options = new_parser(__doc__, seeds=3).parse_args()
    report = new_report("weight-decay", "Weight decay and repeats", options)
    seeds, uses = range(options.seeds), QUICK_USES if options.quick else USES
    jobs = [(n, decay, seed, uses) for n in REPEATS for decay in DECAYS for seed in seeds]
    runs = results_of(loss_of, jobs, options.output, processes=2)
    found: Losses = {
        n: {decay: sample(runs[n, decay, seed, uses] for seed in seeds) for decay in DECAYS}
        for n in REPEATS
    }
    for n, losses in found.items():
        section = f"Held-out nats per byte, {n} uses of {uses // n:,} examples"
        report.add(section, [Row(f"decay {decay:g}", each, "") for decay, each in losses.items()])
    finish(report, options)
    save_figure(drawn(found), options.output / "weight-decay.svg")
