"""Refurbished echoes: the expensive part of an augmentation once an item, the cheap part each use.

The images are scikit-learn's handwritten digits. The expensive part turns one by up to 25 degrees,
the cheap part crops it. With e = 6 both parts, the cheap one or none come after the echo:

    each use      both on every use
    refurbished   turned once an item, cropped on every use
    once          both once an item
    no echo       e = 1

Prints fresh images to the target, with the best of some learning rates, the processor time that the
augmentation of a run takes, and the share of the gain of "each use" over "once" that "refurbished"
has, over pairs of seeds, with a 90% interval.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from common.command import add_seeds, make_output, new_parser, write_results
from scipy.ndimage import rotate

import pyecho
from worth.digits import IMAGES, cost_to_target, costs_of, digits

BATCH, TARGET, GIVES_UP, RATES = 32, 0.04, 40 * IMAGES, (0.02, 0.05, 0.1)


def turned(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The expensive part."""
    return rotate(image, rng.uniform(-25, 25), reshape=False, order=1, mode="nearest")


def cropped(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The cheap part, and the axes as the network wants them."""
    top, left = rng.integers(0, 3, 2)
    return np.ascontiguousarray(image[top : top + 8, left : left + 8].transpose(2, 0, 1))


@dataclass(frozen=True)
class Way:
    """The parts that run once an item, and those on every use."""

    factor: int
    item: tuple = ()
    use: tuple = ()


WAYS = {
    "no echo": Way(1, use=(turned, cropped)),
    "once": Way(6, item=(turned, cropped)),
    "refurbished": Way(6, item=(turned,), use=(cropped,)),
    "each use": Way(6, use=(turned, cropped)),
}


def applied(parts: tuple, example: dict, rng: np.random.Generator) -> dict:
    """Return an example whose image went through these parts."""
    image = example["image"]
    for part in parts:
        image = part(image, rng)
    return example | {"image": image}


def part_seconds(example: dict) -> dict:
    """Return the processor time of each part for an image."""
    rng, found = np.random.default_rng(0), {}
    for part in (turned, cropped):
        image = example["image"]
        began = time.process_time()
        for _ in range(2000):
            part(image, rng)
        found[part] = (time.process_time() - began) / 2000
    return found


def batches(way: Way, examples: dict[str, np.ndarray], seed: int) -> Iterator[tuple[dict, float]]:
    """Yield batches with the fresh images that each costs, pass after pass."""
    for epoch in range(10_000):
        rng = np.random.default_rng([seed, epoch])
        items = (
            applied(way.item, {name: array[n] for name, array in examples.items()}, rng)
            for n in rng.permutation(IMAGES)
        )
        loader = pyecho.EchoLoader(
            items,
            way.factor,
            batch_size=BATCH,
            augment_example=lambda example, rng: applied(way.use, example, rng),
            seed=seed,
        )
        loader.set_epoch(epoch)
        for batch in loader:
            yield batch, len(batch["label"]) / way.factor


def fresh_to_target(name: str, rate: float, seed: int) -> float:
    """Train, and return the fresh images up to the target."""
    torch.set_num_threads(1)
    examples, *tested = digits()
    made = batches(WAYS[name], examples, seed)
    return cost_to_target(made, TARGET, GIVES_UP, rate, seed, tested)


def share_of_gain(found: dict[str, np.ndarray]) -> np.ndarray:
    """Return the share that refurbished echoes have, between the ends of its 90% interval."""
    count = len(found["once"])
    draws = np.random.default_rng(0).integers(0, count, (10_000, count))
    once, part, both = (
        np.median(found[name][draws], axis=1) for name in ("once", "refurbished", "each use")
    )
    return np.quantile((once - part) / (once - both), [0.05, 0.5, 0.95])


def main(arguments: list[str]) -> None:
    """Measure and print."""
    parser = new_parser("worth.py refurbished", __doc__)
    add_seeds(parser, 5)
    options = parser.parse_args(arguments)
    make_output(options)
    found = costs_of(fresh_to_target, WAYS, RATES, options)
    seconds = part_seconds({name: array[0] for name, array in digits()[0].items()})
    cost = {}
    for name, way in WAYS.items():
        fresh = found[name]
        each = sum(seconds[part] for part in way.item) + way.factor * sum(
            seconds[part] for part in way.use
        )
        cost[name] = each * np.median(fresh)
        print(
            f"{name}: {np.median(fresh):,.0f} fresh images [{fresh.min():,.0f}, "
            f"{fresh.max():,.0f}], {cost[name]:.2f} s of augmentation"
        )
    low, middle, high = share_of_gain(found)
    share = cost["refurbished"] / cost["each use"]
    print(
        f"refurbished has {middle:.0%} [{low:.0%}, {high:.0%}] of the gain of each use over once, "
        f"in {share:.0%} of its processor time"
    )
    write_results(options.output, "refurbished", fresh=found, augmentation_seconds=cost)
