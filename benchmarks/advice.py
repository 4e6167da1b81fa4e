"""Checks what `loader.advise()` predicts against runs at every factor.

    python benchmarks/advice.py --rounds 5 --json FILE

Pipelines: the demonstration, with passes that flow into each other, and three whose source,
consumer or augmentation is the limit. In each round every pipeline is measured by advise() once and
then run at each factor, after a warm-up that takes the pool to its steady state. Prints the ratio
of predicted to measured steps per second: the median of the rounds, the lowest and the highest.
Other programs on the machine disturb it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import pyecho
from pyecho.tools import info
from pyecho.tools.advise.model import FACTORS

LIMIT = 0.05
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

    from pyecho.demo.augment import shift_and_rotate
    from pyecho.demo.experiment import calibrate
    from pyecho.demo.images import read_folder, write_digits
    from pyecho.demo.server_process import ServerProcess
    from pyecho.demo.source import RemoteImages
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
        source = RemoteImages(server.port, images.root, images.train, images.shape, seed=0)
        stack.enter_context(closing(source))
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
                augment=shift_and_rotate,
                epochs=1000,
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


def main() -> int:
    """Print a table for each pipeline; return 1 if a median is further off than the limit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", choices=("demo", "synthetic"))
    arguments = parser.parse_args()
    with ExitStack() as stack:
        pipelines = {}
        if arguments.only != "synthetic":
            pipelines["demo"] = stack.enter_context(demonstration())
        if arguments.only != "demo":
            pipelines["source-bound"] = synthetic(4e-3, 3e-3)
            pipelines["consumer-bound"] = synthetic(0.5e-3, 8e-3)
            pipelines["augmentation-bound"] = synthetic(
                2e-3, 4e-3, augment=augmented, augment_workers=2
            )
        ratios: dict[str, dict[str, list[float]]] = {}
        for number in range(arguments.rounds):
            for name, (loader, step) in pipelines.items():
                advice = loader(2).advise(step, steps=arguments.steps)
                print(f"round {number + 1}, {name}: {advice}", file=sys.stderr)
                for each in advice.predictions:
                    measured = steps_per_second(loader(each.factor), step, arguments.steps)
                    found = ratios.setdefault(name, {}).setdefault(f"{each.factor:g}", [])
                    found.append(each.steps_per_second / measured)
    facts = info.collect()
    machine = f"{facts['cores']} cores, pyecho {facts['pyecho']}"
    print(f"Predicted / measured steps per second, {machine}\n")
    print("| Pipeline |" + "".join(f" e = {factor:g} |" for factor in FACTORS))
    print("|---|" + "---|" * len(FACTORS))
    for name, by_factor in ratios.items():
        cells = [
            f"{median(found):.3f} [{min(found):.3f}, {max(found):.3f}]"
            for found in by_factor.values()
        ]
        print(f"| {name} | " + " | ".join(cells) + " |")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"facts": facts, "ratios": ratios}, indent=2) + "\n")
    medians = [median(found) for by_factor in ratios.values() for found in by_factor.values()]
    return int(any(abs(each - 1) > LIMIT for each in medians))


if __name__ == "__main__":
    sys.exit(main())
