"""Scikit-learn's handwritten digits, and a small network that learns them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from common import results_of, sample
from sklearn.datasets import load_digits
from torch import nn

from pyecho.bench.sampling import Sample

IMAGES, TESTED_EVERY = 1024, 8


@cache
def digits() -> tuple[dict[str, np.ndarray], torch.Tensor, torch.Tensor]:
    """Return examples to train on, padded for crops, and images and labels to test with."""
    found = load_digits()
    images = found.images.astype(np.float32)[..., None] / 8 - 1
    order = np.random.default_rng(0).permutation(len(images))
    images, labels = images[order], found.target[order].astype(np.int64)
    train = np.pad(images[:IMAGES], ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-1)
    test = torch.from_numpy(images[IMAGES:].transpose(0, 3, 1, 2))
    return {"image": train, "label": labels[:IMAGES]}, test, torch.from_numpy(labels[IMAGES:])


def network() -> nn.Sequential:
    """Return a small convolutional network."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10)),
    )


def cost_to_target(
    batches: Iterable[tuple[dict[str, Any], float]],
    target: float,
    most: float,
    rate: float,
    seed: int,
) -> float:
    """Train on batches that have costs, and return their sum up to the target, at most `most`.

    The target is an error, and must be kept in two tests in a row, so that luck does not count.
    """
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9)
    _, images, labels = digits()
    spent, good = 0.0, 0
    for step, (batch, cost) in enumerate(batches, 1):
        spent += cost
        inputs, wanted = torch.from_numpy(batch["image"]), torch.from_numpy(batch["label"])
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(inputs), wanted).backward()
        optimizer.step()
        if step % TESTED_EVERY == 0:
            with torch.no_grad():
                error = float((net(images).argmax(1) != labels).float().mean())
            good = good + 1 if error <= target else 0
        if good == 2 or spent > most:
            break
    return min(spent, most)


def costs_of(
    run: Callable[[str, float, int, bool], float],
    names: Iterable[str],
    rates: Sequence[float],
    options: argparse.Namespace,
) -> dict[str, Sample]:
    """Return `run(name, rate, seed, quick)` by seed, for each name with the best of the rates."""
    seeds, quick = range(options.seeds), options.quick
    rates = rates[:1] if quick else rates
    jobs = [(name, rate, seed, quick) for name in names for rate in rates for seed in seeds]
    costs = results_of(run, jobs, options.output, processes=2)
    return {
        name: min(
            (sample(costs[name, rate, seed, quick] for seed in seeds) for rate in rates),
            key=lambda found: found.median,
        )
        for name in names
    }
