"""The whole demonstration: set the speed of the line, then train with every factor and seed."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, nullcontext
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean

import torch

from pyecho.loader import EchoLoader
from pyecho.run.trace import trace
from pyecho.tools import info

from .images import ImageSet, read_folder, write_digits
from .report import PAPER_SPEEDUPS, Row, summarize, table, write_figure
from .source import READ, RemoteImages, ServerProcess
from .train import BATCH_SIZE, Run, Trainer, train_to_target

TARGET_RATIO = 6.0
_CALIBRATION_STEPS = (20, 40, 100)
_CALIBRATION_FACTOR = 4
_TIMED_BATCHES = 8


@dataclass(frozen=True)
class Calibration:
    """The seconds of either side for a batch, t_down and t_up, and the line's bytes per second.

    t_down is the time during which the training loop is busy, tests included. t_up is that of the
    source once the bandwidth is limited.
    """

    downstream_seconds: float
    upstream_seconds: float
    bandwidth: float


def run(plan: argparse.Namespace) -> list[Row]:
    """Run the demonstration for the arguments of the command; print and write its results."""
    torch.set_num_threads(1)  # leaves the other cores to the source
    with ExitStack() as stack:
        folder = plan.images
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyecho-demo-")))
            write_digits(folder)
        images = read_folder(folder)
        channels, height, width = images.shape
        print(
            f"{'Handwritten digits' if plan.images is None else 'Your images'}: "
            f"{len(images.classes)} classes, {len(images.train):,} images to train on, "
            f"{len(images.test):,} to test on, "
            f"{height} x {width} {'grey' if channels == 1 else 'RGB'} pixels\nCalibrating ...",
            flush=True,
        )
        server = stack.enter_context(closing(ServerProcess(folder)))
        trainer = Trainer(images)
        line = calibrate(trainer, images, server)
        print(
            f"Set before training: t_up = {TARGET_RATIO:g} x t_down. Training takes "
            f"t_down = {1e3 * line.downstream_seconds:.1f} ms for a batch of {BATCH_SIZE}; the "
            f"line is limited to {line.bandwidth / 1e3:.0f} kB/s, which makes "
            f"t_up = {1e3 * line.upstream_seconds:.1f} ms\n"
            f"Target: {plan.target:.1%} test accuracy\n",
            flush=True,
        )
        runs = list(_runs(plan, trainer, images, server))
    rows = summarize(runs, line.upstream_seconds)
    print("", table(rows), "", sep="\n")
    missed = sum(not run.reached for run in runs)
    if missed:
        print(
            f"{missed} of {len(runs)} runs did not reach {plan.target:.1%} test accuracy: lower "
            "--target, or raise --max-steps.\n"
        )
    if plan.json is not None:
        document = {
            "machine": info.collect(),
            "images": {
                "origin": "scikit-learn digits" if plan.images is None else "folder",
                "classes": len(images.classes),
                "shape": images.shape,
                "train": len(images.train),
                "test": len(images.test),
            },
            "plan": {
                name: getattr(plan, name) for name in ("factors", "seeds", "target", "max_steps")
            },
            "calibration": asdict(line),
            "paper_speedups": PAPER_SPEEDUPS,
            "summary": [asdict(row) for row in rows],
            "runs": [asdict(run) for run in runs],
        }
        plan.json.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n")
    write_figure(runs, rows, plan.target, plan.output)
    for what, path in (("Trace", plan.trace), ("Numbers", plan.json), ("Figure", plan.output)):
        if path is not None:
            print(f"{what}: {path}")
    return rows


def calibrate(trainer: Trainer, images: ImageSet, server: ServerProcess) -> Calibration:
    """Measure the training loop, then limit the bandwidth so that t_up is 6 x t_down.

    The loop is measured under the conditions of a real run, because the source, the loader and the
    augmentation share the machine with it. Every round trains under the limit that the previous
    round found; the first round has no limit.
    """
    batch_bytes = BATCH_SIZE * fmean(image.path.stat().st_size for image in images.train)
    bandwidth = float("inf")
    for steps in _CALIBRATION_STEPS:
        server.set_bandwidth(bandwidth)
        with closing(open_source(images, server)) as source:
            downstream_seconds = train_to_target(
                trainer, source, factor=_CALIBRATION_FACTOR, seed=0, target=2.0, max_steps=steps
            ).downstream_seconds
        bandwidth = batch_bytes / (TARGET_RATIO * downstream_seconds)
    server.set_bandwidth(bandwidth)
    with closing(open_source(images, server)) as source, EchoLoader(source, 1, **READ) as loader:
        examples = iter(loader)
        list(islice(examples, BATCH_SIZE))  # the first batch also fills the line
        start = time.perf_counter()
        list(islice(examples, _TIMED_BATCHES * BATCH_SIZE))
        upstream_seconds = (time.perf_counter() - start) / _TIMED_BATCHES
    return Calibration(downstream_seconds, upstream_seconds, bandwidth)


def open_source(images: ImageSet, server: ServerProcess) -> RemoteImages:
    """Return the training images, as they come from the server."""
    return RemoteImages(server.port, images.root, images.train, images.shape)


def _runs(
    plan: argparse.Namespace, trainer: Trainer, images: ImageSet, server: ServerProcess
) -> Iterator[Run]:
    """Train with every seed and factor; print a line per run, and show a bar in a terminal."""
    for seed in range(1, plan.seeds + 1):
        with trace(plan.trace) if plan.trace and seed == 1 else nullcontext():
            for number, factor in enumerate(plan.factors, 1 + (seed - 1) * len(plan.factors)):
                with closing(open_source(images, server)) as source:
                    options = {"target": plan.target, "max_steps": plan.max_steps}
                    options["progress"] = sys.stderr.isatty()
                    run = train_to_target(trainer, source, factor=factor, seed=seed, **options)
                print(
                    f"[{number}/{plan.seeds * len(plan.factors)}] e = {factor:g}, seed {seed}: "
                    f"{run.accuracy:.1%} in {run.seconds:5.2f} s, {run.fresh:,} fresh examples, "
                    f"{run.steps:,} steps{'' if run.reached else ', target not reached'}",
                    flush=True,
                )
                yield run
