"""Refurbished echoes: the expensive part of an augmentation once an item, the cheap part each use.

The images are scikit-learn's handwritten digits. The expensive part turns one by up to 25 degrees,
the cheap part crops it. With e = 6 both parts, the cheap one or none come after the echo:

    each use      both on every use
    refurbished   turned once an item, cropped on every use
    once          both once an item
    no echo       e = 1

Prints fresh images to the target, with the best of three learning rates, the processor time that
the augmentation of a run takes, and the share of the gain of "each use" over "once" that
"refurbished" has, over pairs of seeds, with a 90% interval.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from common import finish, new_parser, new_report
from digits import IMAGES, cost_to_target, costs_of, digits
from scipy.ndimage import rotate

import pyecho
from pyecho.bench.row import Row
from pyecho.bench.sampling import Sample

BATCH, TARGET, GIVES_UP, RATES = 32, 0.04, 40 * IMAGES, (0.02, 0.05, 0.1)


def turned(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The expensive part."""
    return rotate(image, rng.uniform(-25, 25), reshape=False, order=1, mode="nearest")


def cropped(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The cheap part, and the axes as the network wants them."""
    top, left = rng.integers(0, 3, 2)
    return np.ascontiguousarray(image[top : top + 8, left : left + 8].transpose(2, 0, 1))


WAYS = {
    "no echo": (1, (), (turned, cropped)),
    "once": (6, (turned, cropped), ()),
    "refurbished": (6, (turned,), (cropped,)),
    "each use": (6, (), (turned, cropped)),
}
"""The factor, the parts that run once an item, and those that run on every use."""


def applied(parts: tuple, example: dict, rng: np.random.Generator) -> dict:
    """Return an example whose image went through these parts."""
    image = example["image"]
    for part in parts:
        image = part(image, rng)
    return example | {"image": image}


def part_seconds() -> dict:
    """Return the processor time of each part for an image."""
    rng, found = np.random.default_rng(0), {}
    image = digits()[0]["image"][0]
    for part in (turned, cropped):
        began = time.process_time()
        for _ in range(2000):
            part(image, rng)
        found[part] = (time.process_time() - began) / 2000
    return found


def batches(name: str, seed: int) -> Iterator[tuple[dict, float]]:
    """Yield batches with the fresh images that each costs, pass after pass."""
    factor, item, use = WAYS[name]
    for epoch in range(10_000):
        rng = np.random.default_rng([seed, epoch])
        items = (
            applied(item, {name: array[n] for name, array in digits()[0].items()}, rng)
            for n in rng.permutation(IMAGES)
        )
        loader = pyecho.EchoLoader(
            items,
            factor,
            batch_size=BATCH,
            augment_example=lambda example, rng: applied(use, example, rng),
            seed=seed,
        )
        loader.set_epoch(epoch)
        for batch in loader:
            yield batch, len(batch["label"]) / factor


def fresh_to_target(name: str, rate: float, seed: int, quick: bool) -> float:
    """Train, and return the fresh images up to the target."""
    most = IMAGES // 8 if quick else GIVES_UP
    return cost_to_target(batches(name, seed), TARGET, most, rate, seed)


def share_of_gain(found: dict[str, Sample]) -> np.ndarray:
    """Return the share that refurbished echoes have, between the ends of its 90% interval."""
    count = len(found["once"].values)
    draws = np.random.default_rng(0).integers(0, count, (10_000, count))
    once, part, both = (
        np.median(np.array(found[name].values)[draws], axis=1)
        for name in ("once", "refurbished", "each use")
    )
    return np.quantile((once - part) / (once - both), [0.05, 0.5, 0.95])


if __name__ == "__main__":
    options = new_parser(__doc__, seeds=5).parse_args()
    report = new_report("refurbished", "Refurbished echoes", options)
    found = costs_of(fresh_to_target, WAYS, RATES, options)
    seconds = part_seconds()
    augmenting = {}
    for name, (factor, item, use) in WAYS.items():
        each = sum(seconds[part] for part in item) + factor * sum(seconds[part] for part in use)
        augmenting[name] = found[name].times(each)
        report.add(f"Fresh images to an error of {TARGET:.0%}", [Row(name, found[name], "images")])
        report.add("Processor time of the augmentation", [Row(name, augmenting[name], "s")])
    if not options.quick:
        report.note(
            "refurbished has {1:.0%} [{0:.0%}, {2:.0%}] of the gain of each use over once, in "
            "{3:.0%} of the processor time of each use".format(
                *share_of_gain(found),
                augmenting["refurbished"].median / augmenting["each use"].median,
            )
        )
    finish(report, options)
