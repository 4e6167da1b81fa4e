"""Does `factor="auto"` train as fast as the best fixed factor?

Five workloads: images (few, and many), text, video and a table. Networks, losses and `Worth` are
real, each at the same learning rate for all factors; the clock only counts: the source takes R = 6
times as long for an item as a step takes for a use. Printed: the time to a test loss, in times of
that with the best fixed factor, medians over seeds with [lowest, highest].

The few images come again and again, so that from the second pass on Worth gets the test losses.
"""

from __future__ import annotations

import string
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from common.command import add_seeds, make_output, new_parser, write_results
from common.runs import results_of
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

import pyecho
from worth.simulated import Clock

BATCH, POOL, RATIO, MANY, TESTED, TESTED_EVERY = 32, 320, 6, 200_000, 2000, 50
FACTORS = (1, 2, 4, 8, 16)
Data = tuple[np.ndarray, np.ndarray]


def _digits(rng: np.random.Generator, images: np.ndarray, count: int) -> np.ndarray:
    """Return so many images, each moved, with another contrast and noise."""
    padded = np.pad(images, ((0, 0), (2, 2), (2, 2)))
    moved = np.empty((count, 8, 8), np.float32)
    for place, (y, x) in enumerate(rng.integers(0, 5, (count, 2))):
        moved[place] = padded[place % len(padded), y : y + 8, x : x + 8]
    scale = rng.uniform(0.5, 1.5, (count, 1, 1)).astype(np.float32)
    return scale * moved + rng.normal(0, 2, moved.shape).astype(np.float32)


@cache
def few_images() -> tuple[Data, Data]:
    """Return 768 images, and others to test with."""
    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    images, labels = found.images[order].astype(np.float32), found.target[order]
    return (images[:768], labels[:768]), (images[768:], labels[768:])


@cache
def many_images() -> tuple[Data, Data]:
    """Return images each of which is moved and blurred in its own way."""
    rng = np.random.default_rng(1)
    (images, labels), (others, wanted) = few_images()
    train, test = _digits(rng, images, MANY), _digits(rng, others, TESTED)
    return (train, np.resize(labels, MANY)), (test, np.resize(wanted, TESTED))


@cache
def text() -> tuple[Data, Data]:
    """Return twelve letters of Python's own library, and the one that follows."""
    folder = Path(sysconfig.get_path("stdlib"))
    read = "".join(path.read_text(errors="ignore") for path in sorted(folder.glob("*.py")))
    known = {letter: number for number, letter in enumerate(string.printable)}
    letters = np.array([known[each] for each in read if each in known], np.int64)
    places = np.random.default_rng(2).permutation(len(letters) - 12)[: MANY + TESTED]
    windows = letters[places[:, None] + np.arange(13)]
    windows, tests = windows[:MANY], windows[MANY:]
    return (windows[:, :12], windows[:, 12]), (tests[:, :12], tests[:, 12])


@cache
def video() -> tuple[Data, Data]:
    """Return clips of a spot that flies in one of eight directions, in noise."""
    rng = np.random.default_rng(3)
    count = MANY // 2 + TESTED
    labels = rng.integers(0, 8, count)
    angles = labels * np.pi / 4 + rng.normal(0, 0.15, count)
    begin, frames = rng.uniform(3, 8, (count, 2)), np.arange(5)
    path = (
        begin[:, None]
        + frames[:, None] * 0.7 * np.stack([np.cos(angles), np.sin(angles)], 1)[:, None]
    )
    grid = np.arange(12)
    y, x = (np.exp(-((path[..., axis, None] - grid) ** 2)) for axis in (0, 1))
    clips = (y[..., None] * x[..., None, :]).astype(np.float32)
    clips += rng.normal(0, 0.5, clips.shape).astype(np.float32)
    return (clips[TESTED:], labels[TESTED:]), (clips[:TESTED], labels[:TESTED])


@cache
def table() -> tuple[Data, Data]:
    """Return rows of 24 numbers, and classes that a network makes of them, with noise."""
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(MANY + TESTED, 24)).astype(np.float32)
    hidden = np.tanh(rows @ rng.normal(size=(24, 12)))
    scores = hidden @ rng.normal(size=(12, 5)) + rng.gumbel(size=(len(rows), 5))
    labels = scores.argmax(1)
    return (rows[:MANY], labels[:MANY]), (rows[MANY:], labels[MANY:])


def images_network() -> nn.Module:
    """Return a small convolutional network."""
    return nn.Sequential(
        *(nn.Unflatten(1, (1, 8)), nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10)),
    )


def text_network() -> nn.Module:
    """Return a network of letters."""
    letters = len(string.printable)
    return nn.Sequential(
        *(nn.Embedding(letters, 24), nn.Flatten(), nn.Linear(288, 192), nn.ReLU()),
        nn.Linear(192, letters),
    )


def video_network() -> nn.Module:
    """Return a network whose channels are frames."""
    return nn.Sequential(
        *(nn.Conv2d(5, 24, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(600, 48), nn.ReLU(), nn.Linear(48, 8)),
    )


def table_network() -> nn.Module:
    """Return a perceptron."""
    return nn.Sequential(nn.Linear(24, 96), nn.ReLU(), nn.Linear(96, 5))


@dataclass(frozen=True)
class Workload:
    """A training: data, network, step size, and the test loss to reach."""

    data: Callable[[], tuple[Data, Data]]
    network: Callable[[], nn.Module]
    rate: float
    target: float
    most: float = 6e5
    """Uses after which a run has failed."""


WORKLOADS = {
    "few images": Workload(few_images, images_network, 5e-5, 0.08),
    "many images": Workload(many_images, images_network, 5e-4, 0.40),
    "text": Workload(text, text_network, 1e-3, 2.2),
    "video": Workload(video, video_network, 1e-3, 0.90),
    "table": Workload(table, table_network, 5e-4, 0.93),
}


def batches(
    data: Data, factor: float | str, seed: int, worth: pyecho.Worth, clock: Clock
) -> Iterator:
    """Yield batches with their infos, pass after pass."""
    options = {"worth": worth} if factor == "auto" else {}
    order = np.random.default_rng(seed).permutation(len(data[0]))
    loader = pyecho.EchoLoader(
        tuple(array[order] for array in data),
        factor,
        batch_size=BATCH,
        shuffle_buffer=POOL,
        with_info=True,
        shuffle=True,
        seed=seed,
        epochs=1000,
        **options,
    )
    if factor == "auto":
        loader._config.adaptive._stats = lambda: clock.stats
    with loader:
        while True:
            yield from loader


def seconds_to_target(name: str, factor: float | str, seed: int) -> float:
    """Train, and return the time that the clock has counted; infinite if that takes too long."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    workload = WORKLOADS[name]
    train, test = workload.data()
    inputs, wanted = map(torch.from_numpy, test)
    net = workload.network()
    optimizer = torch.optim.Adam(net.parameters(), lr=workload.rate)
    worth, clock, before = pyecho.Worth(), Clock(RATIO), np.inf
    for step, ((x, y), info) in enumerate(batches(train, factor, seed, worth, clock)):
        losses = functional.cross_entropy(
            net(torch.from_numpy(x)), torch.from_numpy(y), reduction="none"
        )
        if factor == "auto":
            worth.observe(losses, info)
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
        clock.step(int((info.use == 0).sum()), len(info.use))
        if step % TESTED_EVERY == 0:
            with torch.no_grad():
                loss = float(functional.cross_entropy(net(inputs), wanted))
            if factor == "auto":
                worth.validation(loss)
            if max(loss, before) < workload.target:
                return clock.seconds
            before = loss
            if clock.emitted > workload.most:
                return np.inf
    raise AssertionError("a run has no end")


def main(arguments: list[str]) -> None:
    """Measure, print, and write JSON."""
    parser = new_parser("worth.py training", __doc__)
    add_seeds(parser, 3)
    parser.add_argument("--only", choices=WORKLOADS, help="default: all of them")
    parser.add_argument("--processes", type=int, default=2, help="default: %(default)s")
    options = parser.parse_args(arguments)
    make_output(options)
    names = [options.only] if options.only else list(WORKLOADS)
    factors = (*FACTORS, "auto")
    jobs = [
        (name, each, seed) for name in names for each in factors for seed in range(options.seeds)
    ]
    found = results_of(seconds_to_target, jobs, options.output, processes=options.processes)
    results = {}
    for name in names:
        times = {
            each: [found[name, each, seed] for seed in range(options.seeds)] for each in factors
        }
        best = min(FACTORS, key=lambda each: np.median(times[each]))
        unit = np.median(times[best])
        cells = [
            f"{each if each == 'auto' else f'e = {each}'} {np.median(t) / unit:.2f} "
            f"[{min(t) / unit:.2f}, {max(t) / unit:.2f}]"
            for each, t in times.items()
        ]
        print(f"{name}: " + ", ".join(cells))
        results[name] = {str(each): np.array(t) for each, t in times.items()}
    write_results(options.output, "auto-training", uses=results)
