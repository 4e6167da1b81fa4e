"""The whole demonstration: set the speed of the line, then train with every factor and seed."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Protocol

import torch

from pyecho.run.trace import trace

from .images import ImageSet, read_folder, write_digits
from .server_process import ServerProcess
from .source import RemoteImages
from .train import BATCH_SIZE, Run, Trainer, train_to_target

TARGET_RATIO = 6.0
_CALIBRATION_STEPS = (20, 40, 100)
_CALIBRATION_FACTOR = 4
_TIMED_BATCHES = 8


@dataclass(frozen=True)
class Plan:
    """The runs to make.

    Parameters
    ----------
    factors
        Echo factors, in ascending order; the first is 1, the baseline.
    seeds
        How many runs each factor gets.
    target
        Test accuracy to reach.
    max_steps
        Number of steps after which a run gives up.
    folder
        Images of the user's own, or None for the handwritten digits.
    trace
        Where to write a trace of the runs with the first seed, or None.
    """

    factors: Sequence[float]
    seeds: int
    target: float
    max_steps: int
    folder: Path | None
    trace: Path | None = None


@dataclass(frozen=True)
class Calibration:
    """The speed of either side on this machine.

    Parameters
    ----------
    downstream_seconds
        t_down: time for a batch during which the training loop is busy, tests included.
    upstream_seconds
        t_up: time of the source for a batch once the bandwidth is limited.
    bandwidth
        The limit, in image bytes per second.
    """

    downstream_seconds: float
    upstream_seconds: float
    bandwidth: float


@dataclass(frozen=True)
class Outcome:
    """The results of the demonstration."""

    plan: Plan
    images: ImageSet
    calibration: Calibration
    runs: Sequence[Run]


class Observer(Protocol):
    """Receives the progress of the demonstration."""

    def images_found(self, images: ImageSet) -> None:
        """Receive the training data."""

    def calibrated(self, calibration: Calibration) -> None:
        """Receive the speed of both sides."""

    def run_started(self, factor: float, seed: int) -> None:
        """Receive the start of a run."""

    def run_tested(self, run: Run) -> None:
        """Receive the state of the current run."""

    def run_finished(self, run: Run) -> None:
        """Receive the result of a run."""


def run_experiment(plan: Plan, observer: Observer) -> Outcome:
    """Run the plan from the first image to the last run.

    PyTorch gets one thread, so that training leaves the other cores to the source.
    """
    torch.set_num_threads(1)
    with ExitStack() as stack:
        folder = plan.folder
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyecho-demo-")))
            write_digits(folder)
        images = read_folder(folder)
        observer.images_found(images)
        trainer = Trainer(images)
        server = stack.enter_context(closing(ServerProcess(folder)))
        calibration = calibrate(trainer, images, server)
        observer.calibrated(calibration)
        runs = []
        for seed in range(1, plan.seeds + 1):
            traced = plan.trace if seed == 1 else None
            with nullcontext() if traced is None else trace(traced):
                for factor in plan.factors:
                    observer.run_started(factor, seed)
                    with closing(_open_source(images, server, seed)) as source:
                        run = train_to_target(
                            trainer,
                            source,
                            factor=factor,
                            seed=seed,
                            target=plan.target,
                            max_steps=plan.max_steps,
                            on_test=observer.run_tested,
                        )
                    runs.append(run)
                    observer.run_finished(run)
    return Outcome(plan, images, calibration, runs)


def calibrate(trainer: Trainer, images: ImageSet, server: ServerProcess) -> Calibration:
    """Measure the training loop, then limit the bandwidth so that t_up is 6 x t_down.

    The loop is measured under the conditions of a real run, because the source, the loader and the
    augmentation share the machine with it. Every round trains under the limit that the previous
    round found; the first round has no limit.
    """
    batch_bytes = BATCH_SIZE * fmean(image.path.stat().st_size for image in images.train)
    bandwidth = float("inf")
    downstream_seconds = 0.0
    for steps in _CALIBRATION_STEPS:
        server.set_bandwidth(bandwidth)
        with closing(_open_source(images, server, seed=0)) as source:
            downstream_seconds = train_to_target(
                trainer, source, factor=_CALIBRATION_FACTOR, seed=0, target=2.0, max_steps=steps
            ).downstream_seconds
        bandwidth = batch_bytes / (TARGET_RATIO * downstream_seconds)
    server.set_bandwidth(bandwidth)
    return Calibration(downstream_seconds, _time_source(images, server), bandwidth)


def _open_source(images: ImageSet, server: ServerProcess, seed: int) -> RemoteImages:
    return RemoteImages(server.port, images.root, images.train, images.shape, seed=seed)


def _time_source(images: ImageSet, server: ServerProcess) -> float:
    """Return the seconds that the source takes for a batch, after the first one."""
    with closing(_open_source(images, server, seed=0)) as source:
        examples = iter(source)
        start = time.perf_counter()
        for count, _ in enumerate(islice(examples, (_TIMED_BATCHES + 1) * BATCH_SIZE), 1):
            if count == BATCH_SIZE:
                start = time.perf_counter()
        return (time.perf_counter() - start) / _TIMED_BATCHES
