"""Processor noise: time that workers take from the training beside them, and echoing gives back.

    python benchmarks/worth.py neighbours --rounds 3

A network is trained on the processor, and its images are decoded there too: each takes some
milliseconds of a processor. Three ways, in turns, each for the same time of the wall:

    all cores    as many worker processes as there are cores, e = 1
    40%, e = R   as many as use 40% of the cores, each image as often as that makes necessary
    alone        decoded before, as a limit: nothing runs beside the training

Printed: the time of a step, with its 90th percentile, steps in all, and the test loss at the end.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import cache
from itertools import chain, repeat

import numpy as np
import torch
from common.command import printing_parser
from rich.progress import track
from sklearn.datasets import load_digits
from torch.nn import functional

import pyecho
from pyecho.config import available_cores
from pyecho.tools.arguments import positive_int
from worth.digits import network

BATCH, DECODE_SECONDS, MODES = 32, 2e-3, ("all cores", "40%, e = R", "alone")
ORIGINALS, TRAINED, TESTED = 768, 200_000, 2000
Data = tuple[np.ndarray, np.ndarray]


def changed(rng: np.random.Generator, images: np.ndarray, count: int) -> np.ndarray:
    """Return so many images, each moved, with another contrast and noise."""
    padded = np.pad(images, ((0, 0), (2, 2), (2, 2)))
    moved = np.empty((count, 8, 8), np.float32)
    for place, (y, x) in enumerate(rng.integers(0, 5, (count, 2))):
        moved[place] = padded[place % len(padded), y : y + 8, x : x + 8]
    scale = rng.uniform(0.5, 1.5, (count, 1, 1)).astype(np.float32)
    return scale * moved + rng.normal(0, 2, moved.shape).astype(np.float32)


@cache
def many_images() -> tuple[Data, Data]:
    """Return images to train on, and others to test with."""
    found, rng = load_digits(), np.random.default_rng(1)
    order = np.random.default_rng(0).permutation(len(found.target))
    images, labels = found.images[order].astype(np.float32), found.target[order]
    train = changed(rng, images[:ORIGINALS], TRAINED), np.resize(labels[:ORIGINALS], TRAINED)
    return train, (changed(rng, images[ORIGINALS:], TESTED), np.resize(labels[ORIGINALS:], TESTED))


class Decoded:
    """Images that take a processor for some time, each time they are asked for."""

    def __init__(self, share: float) -> None:
        self.share = share  # of a processor that a worker uses
        (self.images, self.labels), _ = many_images()

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        end = time.thread_time() + DECODE_SECONDS
        while time.thread_time() < end:
            pass
        time.sleep(DECODE_SECONDS * (1 / self.share - 1))
        return self.images[index], int(self.labels[index])


@dataclass
class Run:
    """Measurements of one run."""

    step_seconds: np.ndarray
    loss: float


def run(mode: str, seconds: float, seed: int) -> Run:
    """Train for so many seconds."""
    torch.manual_seed(seed)
    (images, labels), test = many_images()
    net, cores = network(), available_cores()
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-4)
    options = {"batch_size": BATCH, "shuffle_buffer": 10 * BATCH, "seed": seed, "shuffle": True}
    if mode == "alone":
        loader = pyecho.EchoLoader((images, labels), 1, **options)
    elif mode == "all cores":
        loader = pyecho.EchoLoader(Decoded(1), 1, num_workers=cores, **options)
    else:
        count = max(1, round(0.4 * cores))
        share = min(1.0, 0.4 * cores / count)
        factor = pyecho.Adaptive(8)
        loader = pyecho.EchoLoader(Decoded(share), factor, num_workers=count, **options)
    taken, end = [], math.inf
    with loader:
        for x, y in chain.from_iterable(repeat(loader)):
            began = time.perf_counter()
            if not taken:
                end = began + seconds  # once the workers have begun
            optimizer.zero_grad()
            for _ in range(4):  # a network that takes four times as long
                loss = functional.cross_entropy(
                    net(torch.from_numpy(x)[:, None]), torch.from_numpy(y)
                )
            loss.backward()
            optimizer.step()
            taken.append(time.perf_counter() - began)
            if time.perf_counter() > end:
                break
    with torch.no_grad():
        x, y = map(torch.from_numpy, test)
        loss = functional.cross_entropy(net(x[:, None]), y)
    return Run(np.array(taken), float(loss))


def main(arguments: list[str]) -> None:
    """Measure and print."""
    parser = printing_parser("worth.py neighbours", __doc__)
    parser.add_argument("--rounds", type=positive_int, default=3, help="default: %(default)s")
    parser.add_argument("--seconds", type=positive_int, default=20, help="default: %(default)s")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    found: dict[str, list[Run]] = {mode: [] for mode in MODES}
    jobs = [(mode, seed) for seed in range(options.rounds) for mode in MODES]
    for mode, seed in track(jobs, "runs"):
        found[mode].append(run(mode, options.seconds, seed))
    for mode, runs in found.items():
        rows = {
            "step": [1e3 * np.median(each.step_seconds) for each in runs],
            "90%": [1e3 * np.quantile(each.step_seconds, 0.9) for each in runs],
            "steps": [len(each.step_seconds) for each in runs],
            "loss": [each.loss for each in runs],
        }
        cells = [
            f"{name} {np.median(values):.4g} [{min(values):.4g}, {max(values):.4g}]"
            for name, values in rows.items()
        ]
        print(f"{mode}: " + ", ".join(cells))
