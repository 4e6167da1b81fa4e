"""Trains the network of `pyecho demo` with its crops by `ops` and by `augment`.

The images are the digits of scikit-learn, in memory; e = 3. Both variants draw such parts, by
generators of their own: `ops` crops and resizes each use while it is copied, `augment` a whole
batch at once, by torch's grid_sample, the fastest way in Python. Compared are, seed by seed, the
fresh examples whose uses are trained on until the test accuracy reaches the target, and the
processor time of all threads of the loader alone for a batch.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import finish, new_parser, new_report, sample
from torch.nn import functional

from pyecho.bench.row import Row
from pyecho.bench.sampling import interleaved, turns
from pyecho.demo.images import ImageSet, decode, read_folder, write_digits
from pyecho.demo.train import BATCH_SIZE, LEAST_AREA, SHUFFLE_BUFFER, STEPS_PER_TEST, Trainer
from pyecho.torch import EchoLoader

FACTOR = 3
TARGET = 0.97
MOST_STEPS = 1500
TIMED_BATCHES = 400
VARIANTS = ("ops", "augment")


class Digits:
    """The training images; each pass has an order of its own."""

    def __init__(self, images: ImageSet, seed: int) -> None:
        self._examples = [
            {"image": decode(image.path, images.shape), "label": image.label}
            for image in images.train
        ]
        self._rng = np.random.default_rng(seed)

    def __iter__(self) -> Iterator[Any]:
        return (self._examples[index] for index in self._rng.permutation(len(self._examples)))


def cropped(side: int) -> Callable[[Any, np.random.Generator], Any]:
    """Return an `augment` that crops and resizes as `RandomResizedCrop(side)` does."""

    def augment(batch: Any, rng: np.random.Generator) -> Any:
        image = batch["image"].movedim(-1, 1).float().div_(255)
        count, _, height, width = image.shape
        area = rng.uniform(LEAST_AREA, 1, count) * height * width
        ratio = np.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3), count))
        columns = np.minimum(width, np.rint(np.sqrt(area * ratio)))
        rows = np.minimum(height, np.rint(np.sqrt(area / ratio)))
        left = np.floor(rng.random(count) * (width - columns + 1))
        top = np.floor(rng.random(count) * (height - rows + 1))
        motion = np.zeros((count, 2, 3), np.float32)  # coordinates run from -1 to 1
        motion[:, 0, 0], motion[:, 1, 1] = columns / width, rows / height
        motion[:, 0, 2] = (2 * left + columns) / width - 1
        motion[:, 1, 2] = (2 * top + rows) / height - 1
        size = [count, 1, side, side]
        grid = functional.affine_grid(torch.from_numpy(motion), size, align_corners=False)
        batch["image"] = functional.grid_sample(
            image, grid, padding_mode="border", align_corners=False
        )
        return batch

    return augment


class Contest:
    """The variants, with a network that all of them train."""

    def __init__(self, images: ImageSet, target: float) -> None:
        self._images = images
        self._target = target
        self._trainer = Trainer(images)
        self._seeds: dict[str, int] = {}

    def loader(self, variant: str, seed: int) -> EchoLoader:
        """Return a loader of a variant, over passes without end."""
        options: dict[str, Any] = {
            "ops": {"ops": {"image": self._trainer.augmentation}},
            "augment": {"augment": cropped(self._images.shape[1])},
        }[variant]
        return EchoLoader(
            Digits(self._images, seed),
            FACTOR,
            batch_size=BATCH_SIZE,
            shuffle_buffer=SHUFFLE_BUFFER,
            seed=seed,
            epochs=1000,
            threads=1,
            **options,
        )

    def trained(self, variant: str) -> tuple[float, bool]:
        """Train with the next seed: fresh examples to the target, and whether it was reached."""
        seed = self._seeds[variant] = self._seeds.get(variant, 0) + 1
        self._trainer.start(seed)
        with closing(self.loader(variant, seed)) as loader:
            for step, batch in enumerate(batches(loader), 1):
                self._trainer.step(batch)
                if step % STEPS_PER_TEST:
                    continue
                accuracy = self._trainer.test_accuracy()
                if accuracy >= self._target or step >= MOST_STEPS:
                    break
            return step * BATCH_SIZE / FACTOR, accuracy >= self._target

    def loaded(self, variant: str) -> float:
        """Return the microseconds of processor time for a batch that nothing is trained on."""
        with closing(self.loader(variant, 0)) as loader:
            source = batches(loader)
            for _ in islice(source, 20):
                pass
            begun = time.process_time()
            for _ in islice(source, TIMED_BATCHES):
                pass
            return 1e6 * (time.process_time() - begun) / TIMED_BATCHES


def batches(loader: EchoLoader) -> Iterator[Any]:
    """Yield the batches of all epochs."""
    while True:
        yield from loader


def main() -> None:
    """Time the loaders, then train with every seed."""
    options = new_parser(__doc__, rounds=7).parse_args()
    torch.set_num_threads(1)
    target = 0.5 if options.quick else TARGET
    report = new_report("ops-training", "Training with operations", options)
    with tempfile.TemporaryDirectory() as name:
        write_digits(Path(name))
        contest = Contest(read_folder(Path(name)), target)
        loaded = interleaved(
            "the loader alone",
            options.rounds,
            {each: partial(contest.loaded, each) for each in VARIANTS},
        )
        calls = {each: partial(contest.trained, each) for each in VARIANTS}
        runs = turns("training", options.rounds, calls, warm_ups=0)
    fresh = {each: sample(run[0] for run in runs[each]) for each in VARIANTS}
    for what, unit, found in (
        ("fresh examples to the target", "", fresh),
        ("the loader alone", "us of a core for a batch", loaded),
    ):
        row = Row(f"{what}, ops", found["ops"], unit, found["augment"], "augment")
        report.add(f"e = {FACTOR}, test accuracy {target}", [row])
    for each in VARIANTS:
        missed = sum(not reached for _, reached in runs[each])
        report.note(f"{each}: {missed} runs ended at {MOST_STEPS} steps, below the target")
    finish(report, options)


if __name__ == "__main__":
    main()
