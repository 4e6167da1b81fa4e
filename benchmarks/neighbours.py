"""Processor noise: time that workers take from the training beside them, and echoing gives back.

A network is trained on the processor, and its images are decoded there too: each takes some
milliseconds of a processor. Three ways, in turns, each for the same time of the wall:

    all cores    as many worker processes as there are cores, e = 1
    40%, e = R   as many as use 40% of the cores, each image as often as that makes necessary
    alone        decoded before, as a limit: nothing runs beside the training

Printed: the time of a step, with its 90th percentile, steps in all, and the test loss at the end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cache, partial
from itertools import chain, count, repeat

import numpy as np
import torch
from common import finish, new_parser, new_report, sample
from digits import network
from sklearn.datasets import load_digits
from torch.nn import functional

import pyecho
from pyecho._core import available_cores
from pyecho.bench.row import Row
from pyecho.bench.sampling import turns

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


def run(mode: str, seconds: float, seeds: Iterator[int]) -> dict[str, float]:
    """Train for so many seconds."""
    torch.manual_seed(seed := next(seeds))
    (images, labels), test = many_images()
    net, cores = network(), available_cores()
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-4)
    options = {"batch_size": BATCH, "shuffle_buffer": 10 * BATCH, "seed": seed, "shuffle": True}
    if mode == "alone":
        loader = pyecho.EchoLoader((images, labels), 1, **options)
    elif mode == "all cores":
        loader = pyecho.EchoLoader(Decoded(1), 1, num_workers=cores, **options)
    else:
        workers = max(1, round(0.4 * cores))
        share = min(1.0, 0.4 * cores / workers)
        factor = pyecho.Adaptive(8)
        loader = pyecho.EchoLoader(Decoded(share), factor, num_workers=workers, **options)
    taken: list[float] = []
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
    return {
        "a step, ms": 1e3 * float(np.median(taken)),
        "90th percentile, ms": 1e3 * float(np.quantile(taken, 0.9)),
        "steps": len(taken),
        "test loss": float(loss),
    }


if __name__ == "__main__":
    options = new_parser(__doc__, rounds=3, seconds=20).parse_args()
    report = new_report("neighbours", "Workers beside training", options, seconds=options.seconds)
    torch.set_num_threads(1)
    contestants = {mode: partial(run, mode, options.seconds, count()) for mode in MODES}
    found = turns("training", options.rounds, contestants, warm_ups=0)
    for name in found["alone"][0]:
        values = {mode: sample(each[name] for each in runs) for mode, runs in found.items()}
        rows = [Row(mode, values[mode], "", values["alone"], "alone") for mode in MODES]
        report.add(name, rows)
    finish(report, options)
