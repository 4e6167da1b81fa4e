"""Scikit-learn's handwritten digits, and a small network that learns them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from common.runs import results_of
from sklearn.datasets import load_digits
from torch import nn

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
    tested: tuple[torch.Tensor, torch.Tensor],
) -> float:
    """Train on batches that have costs, and return their sum up to the target; inf beyond `most`.

    The target is an error, and must be kept in two tests in a row, so that luck does not count.
    """
    torch.manual_seed(seed)
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9)
    images, labels = tested
    spent, good = 0.0, 0
    for step, (batch, cost) in enumerate(batches):
        spent += cost
        inputs, wanted = torch.from_numpy(batch["image"]), torch.from_numpy(batch["label"])
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(inputs), wanted).backward()
        optimizer.step()
        if step % TESTED_EVERY == TESTED_EVERY - 1:
            with torch.no_grad():
                error = float((net(images).argmax(1) != labels).float().mean())
            good = good + 1 if error <= target else 0
            if good == 2:
                return spent
        if spent > most:
            break
    return np.inf


def costs_of(
    run: Callable[[str, float, int], float],
    names: Iterable[str],
    rates: Sequence[float],
    options: argparse.Namespace,
) -> dict[str, np.ndarray]:
    """Return `run(name, rate, seed)` by seed, for each name with the best of the learning rates."""
    seeds = range(options.seeds)
    jobs = [(name, rate, seed) for name in names for rate in rates for seed in seeds]
    costs = results_of(run, jobs, options.output, processes=2)
    return {
        name: min(
            (np.array([costs[name, rate, seed] for seed in seeds]) for rate in rates),
            key=np.median,
        )
        for name in names
    }
