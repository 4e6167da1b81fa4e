"""A ResNet-50 that waits for its images, with and without echoing, against Eq. 1 of the paper."""

from __future__ import annotations

import statistics
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional

import pyecho.torch
from gpu.resnet import resnet50
from gpu.setup import Scale, seconds
from pyecho._core import available_cores
from pyecho.bench.report import Report
from pyecho.bench.row import Row
from pyecho.bench.sampling import Sample, turns

CLASSES, SHAPE = 1000, (3, 224, 224)
RESIDENT = "resident batch"


class DecodedBatches:
    """Endless batches of (images, labels), decoded by processes, as threads would take the GIL."""

    def __init__(self, batch: int, batch_seconds: float) -> None:
        self.batch = batch
        self.seconds_of_batches: list[float] = []
        workers = max(1, available_cores() // 2)
        self._image_seconds = batch_seconds * workers / batch
        self._pool = ProcessPoolExecutor(workers, get_context("spawn"))

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown(cancel_futures=True)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        """Decode."""
        ramps = (np.arange(SHAPE[1])[:, None] * np.arange(SHAPE[2])).astype(np.uint8)
        data = [zlib.compress(np.broadcast_to(ramps, SHAPE).tobytes())] * self.batch
        labels = np.arange(self.batch) % CLASSES
        while True:
            began = time.perf_counter()
            images = np.empty((self.batch, *SHAPE), np.uint8)
            took = [self._image_seconds] * self.batch
            for row, image in zip(images, self._pool.map(decoded, data, took), strict=True):
                row[...] = np.frombuffer(image, np.uint8).reshape(SHAPE)
            self.seconds_of_batches.append(time.perf_counter() - began)
            yield images, labels


def decoded(data: bytes, cpu_seconds: float) -> bytes:
    """Decode an image again and again, for this time of a processor."""
    end = time.thread_time() + cpu_seconds
    image = zlib.decompress(data)
    while time.thread_time() < end:
        image = zlib.decompress(data)
    return image


class Trainer:
    """Takes steps: forward and backward in bfloat16, and SGD with momentum."""

    def __init__(self, device: torch.device) -> None:
        torch.backends.cudnn.benchmark = True
        model: Any = resnet50(CLASSES).to(device)
        self._model = model.to(memory_format=torch.channels_last)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=1e-3, momentum=0.9)

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        """Train on a batch of uint8 images."""
        scaled = images.to(torch.bfloat16, memory_format=torch.channels_last).sub_(128).div_(64)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = functional.cross_entropy(self._model(scaled), labels)
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)


class Times(NamedTuple):
    """Seconds in a run of some steps."""

    step: float
    up: float
    """The source's time for a fresh batch."""


def run(
    device: torch.device, trainer: Trainer, source: DecodedBatches, factor: int, fresh: int
) -> Times:
    """Train until `fresh` batches have been used, in the steady state of the loader.

    Every fresh batch gives `factor` steps. A loop that waits for its source runs at the source's
    speed, so n * `factor` steps take n times the source's time for a batch, wherever they start.
    """
    loader = pyecho.torch.EchoLoader(
        iter(source),
        factor,
        batch_size=source.batch,
        unbatch=True,
        shuffle_buffer=source.batch,
        device=pyecho.torch.Device(device, echo=True),
    )

    def take(steps: int) -> None:
        for _ in range(steps):
            trainer.step(*next(batches))

    with loader:
        batches = iter(loader)
        take(4 * factor)
        torch.cuda.synchronize(device)
        before = len(source.seconds_of_batches)
        wall = seconds(device, lambda: take(fresh * factor))
        up = statistics.fmean(source.seconds_of_batches[before:] or source.seconds_of_batches)
    return Times(wall / (fresh * factor), up)


def measure(device: torch.device, report: Report, scale: Scale) -> None:
    """Measure steps a second for each factor."""
    free_bytes = torch.cuda.mem_get_info(device)[0]  # training takes 100 MB for an image
    batch = min(scale.images, max(2, int((free_bytes - 2e9) / 0.15e9) // 8 * 8))
    trainer = Trainer(device)
    images = torch.randint(256, (batch, *SHAPE), device=device).to(torch.uint8)
    labels = torch.randint(CLASSES, (batch,), device=device)

    def resident() -> Times:
        def steps() -> None:
            for _ in range(scale.steps):
                trainer.step(images, labels)

        return Times(seconds(device, steps) / scale.steps, 0.0)

    resident()
    source = DecodedBatches(batch, scale.ratio * resident().step)
    try:
        run(device, trainer, source, 2, 1)
        contestants = {RESIDENT: resident} | {
            f"e = {factor}": partial(run, device, trainer, source, factor, scale.steps)
            for factor in scale.factors
        }
        found = turns("training", 3 if scale.rounds > 1 else 1, contestants, warm_ups=0)
    finally:
        source.close()
    down = Sample(tuple(times.step for times in found.pop(RESIDENT)))
    steps = {name: Sample(tuple(each.step for each in runs)) for name, runs in found.items()}
    once = steps["e = 1"]
    section = f"Training a ResNet-50, batches of {batch}"
    for factor, (name, runs) in zip(scale.factors, found.items(), strict=True):
        up = Sample(tuple(each.up for each in runs))
        eq1 = up.times(1 / factor).combined(max, down)
        report.add(
            section,
            [
                Row(f"{name}: a step", steps[name].times(1e3), "ms", eq1.times(1e3), "Eq. 1"),
                Row(f"{name}: times as fast", once / steps[name], "x"),
                Row(f"{name}: the GPU works", down / steps[name], "of the time"),
            ],
        )
    ratio = Sample(tuple(each.up for each in found["e = 1"])) / down
    report.note(f"training: {1e3 * down.median:.1f} ms a resident step, R = {ratio.median:.2f}")
