"""Checks what `loader.advise()` predicts against runs at every factor.

Pipelines: the demonstration, with passes that flow into each other, and three whose source,
consumer or augmentation is the limit. In each round every pipeline is measured by advise() and
run at each factor, in turns, after a warm-up that takes the pool to its steady state. Ratios are
those of predicted to measured steps per second. Exits with 1 if the median of a ratio is off by
more than 5%. Other programs on the machine disturb it.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common import finish, new_parser, new_report, sample

import pyecho
from pyecho.bench.row import Row
from pyecho.bench.sampling import turns
from pyecho.tools.advise.model import FACTORS
from pyecho.tools.arguments import some_of

LIMIT = 0.05
NAMES = ("demo", "source-bound", "consumer-bound", "augmentation-bound")
Step = Callable[[Any], object]
Pipeline = tuple[Callable[[float], pyecho.EchoLoader], Step]  # (loader at a factor, step)
BATCH = {"batch_size": 8, "shuffle_buffer": 16, "threads": 1}


class Slow:
    """A source of small rows, each after a pause."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __iter__(self) -> Iterator[Any]:
        for number in range(100_000):
            time.sleep(self.seconds)
            yield np.full((64, 64), number, np.float32)


def synthetic(item_seconds: float, step_seconds: float, **options: Any) -> Pipeline:
    """Return a pipeline of pauses."""
    source = Slow(item_seconds)
    return (
        lambda factor: pyecho.EchoLoader(source, factor, **BATCH, **options),
        lambda batch: time.sleep(step_seconds),
    )


def augmented(batch: Any, rng: np.random.Generator) -> Any:
    """Take a pause, without the GIL."""
    time.sleep(20e-3)
    return batch


@contextmanager
def demonstration() -> Iterator[Pipeline]:
    """Yield the pipeline of `pyecho demo`: images over a limited line, and a network."""
    import torch

    from pyecho.demo.experiment import calibrate, open_source
    from pyecho.demo.images import read_folder, write_digits
    from pyecho.demo.source import READ, ServerProcess
    from pyecho.demo.train import BATCH_SIZE, SHUFFLE_BUFFER, STEPS_PER_TEST, Trainer
    from pyecho.torch import EchoLoader

    torch.set_num_threads(1)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        write_digits(folder)
        images = read_folder(folder)
        trainer = Trainer(images)
        server = stack.enter_context(closing(ServerProcess(folder)))
        calibrate(trainer, images, server)
        source = stack.enter_context(closing(open_source(images, server)))
        steps = 0

        def step(batch: Any) -> None:
            nonlocal steps
            trainer.step(batch)
            steps += 1
            if steps % STEPS_PER_TEST == 0:
                trainer.test_accuracy()

        def loader(factor: float) -> EchoLoader:
            return EchoLoader(
                source,
                factor,
                batch_size=BATCH_SIZE,
                shuffle_buffer=SHUFFLE_BUFFER,
                fields={"image": trainer.field},
                ops={"image": trainer.augmentation},
                epochs=1000,
                **READ,
            )

        yield loader, step


def steps_per_second(loader: pyecho.EchoLoader, step: Step, steps: int) -> float:
    """Run a pipeline and return its speed after a warm-up."""
    uses = int(loader._config.factor * loader._config.capacity)
    warm_up = 10 + 2 * uses // (loader._config.batch_size or 1)
    done, began = 0, 0.0
    with closing(loader):
        for batch in itertools.chain.from_iterable(itertools.repeat(loader)):
            step(batch)
            done += 1
            if done == warm_up:
                began = time.perf_counter()
            if done == warm_up + steps:
                break
        return steps / (time.perf_counter() - began)


def measure(name: str, pipeline: Pipeline, rounds: int, steps: int) -> list[Row]:
    """Compare one prediction a round with a run at each factor."""
    loader, step = pipeline

    def predicted() -> dict[float, float]:
        advice = loader(2).advise(step, steps=steps)
        return {each.factor: each.steps_per_second for each in advice.predictions}

    def measured(factor: float) -> dict[float, float]:
        return {factor: steps_per_second(loader(factor), step, steps)}

    contestants = {"advice": predicted} | {
        f"e = {factor:g}": partial(measured, factor) for factor in FACTORS
    }
    found = turns(name, rounds, contestants, warm_ups=0)
    rows = []
    for factor in FACTORS:
        advised, ran = (
            sample(round_[factor] for round_ in found[each])
            for each in ("advice", f"e = {factor:g}")
        )
        rows.append(Row(f"e = {factor:g}, predicted", advised, "steps/s", ran, "run"))
    return rows


def main() -> int:
    """Print a table for each pipeline; return 1 if a median is further off than the limit."""
    parser = new_parser(__doc__, rounds=5, steps=200)
    parser.add_argument("--only", type=some_of(NAMES), default=NAMES, metavar="NAME,...")
    options = parser.parse_args()
    steps = min(options.steps, 5) if options.quick else options.steps
    report = new_report("advice", "What advise() predicts", options, steps=steps)
    report.partial |= options.only != NAMES
    pipelines = {
        "source-bound": synthetic(4e-3, 3e-3),
        "consumer-bound": synthetic(0.5e-3, 8e-3),
        "augmentation-bound": synthetic(2e-3, 4e-3, augment=augmented, augment_workers=2),
    }
    with ExitStack() as stack:
        if "demo" in options.only:
            pipelines["demo"] = stack.enter_context(demonstration())
        for name in options.only:
            report.add(name, measure(name, pipelines[name], options.rounds, steps))
    finish(report, options)
    ratios = [row.compared() for rows in report.sections.values() for row in rows]
    return int(any(ratio is not None and abs(ratio.median - 1) > LIMIT for ratio in ratios))


if __name__ == "__main__":
    sys.exit(main())
