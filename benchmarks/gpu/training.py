"""A ResNet-50 that waits for its images, with and without echoing, against Eq. 1 of the paper."""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.nn import functional

import pyecho.torch
from gpu.images import CLASSES, CROP, DecodedBatches, speed_for
from gpu.measuring import seconds, synchronize
from gpu.resnet import resnet50
from gpu.workload import Scale
from pyecho.bench.report import Report
from pyecho.bench.row import Row
from pyecho.bench.sampling import Sample, turns
from pyecho.config import available_cores

R = 4.0
"""The intended t_up / t_down; the report has the measured one."""
MOST_SECONDS = 120
RESIDENT = "resident batch"


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
        loss.backward()  # type: ignore[no-untyped-call, unused-ignore]
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)


class Steps(NamedTuple):
    """The times of a run of some steps, in seconds."""

    wall: float
    """For a step."""
    up: float
    """The source's time for a fresh batch."""


def batch_size_for(free_bytes: int) -> int:
    """Return how many images fit: training takes about 100 MB for each in bfloat16."""
    return next((size for size in (128, 64, 32, 16) if size * 0.15e9 + 2e9 < free_bytes), 8)


def run(
    device: torch.device, trainer: Trainer, source: DecodedBatches, factor: int, fresh: int
) -> Steps:
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
            images, labels = next(batches)
            trainer.step(images, labels)

    with loader:
        batches = iter(loader)
        take(4 * factor)
        synchronize(device)
        before = len(source.seconds_of_batches)
        steps = fresh * factor
        wall = seconds(device, lambda: take(steps))
        up = statistics.fmean(source.seconds_of_batches[before:] or source.seconds_of_batches)
    return Steps(wall / steps, up)


def measure(device: torch.device, report: Report, scale: Scale) -> None:
    """Measure steps per second for each factor."""
    fresh, factors = scale.fresh, scale.factors
    batch = min(scale.most_images, batch_size_for(torch.cuda.mem_get_info(device)[0]))
    trainer = Trainer(device)
    images = torch.randint(256, (batch, 3, CROP, CROP), device=device).to(torch.uint8)
    labels = torch.randint(CLASSES, (batch,), device=device)

    def resident() -> Steps:
        def steps() -> None:
            for _ in range(scale.resident_steps):
                trainer.step(images, labels)

        return Steps(seconds(device, steps) / scale.resident_steps, 0.0)

    resident()
    down_seconds = resident().wall
    # Fewer rounds on a slow GPU, to stay within the time limit.
    expected = R * down_seconds * (fresh + 6) * len(factors)
    rounds = 1 if scale.rounds < 7 or expected > MOST_SECONDS / 3 else 3
    source = DecodedBatches(batch)
    try:
        one = source.seconds()
        source.close()
        source.slowed(*speed_for(one, R * down_seconds, max(1, available_cores() // 2)))
        run(device, trainer, source, 2, 1)
        contestants = {RESIDENT: resident} | {
            f"e = {factor}": partial(run, device, trainer, source, factor, fresh)
            for factor in factors
        }
        found = turns("training", rounds, contestants, warm_ups=0)
    finally:
        source.close()
    down = Sample(tuple(steps.wall for steps in found[RESIDENT]))
    _report(report, source, down, {factor: found[f"e = {factor}"] for factor in factors})


def _report(
    report: Report, source: DecodedBatches, downs: Sample, runs: dict[int, list[Steps]]
) -> None:
    """Add the rows. `downs`: seconds of a step with a resident batch; `runs`: those of each e."""

    def predicted(factor: int) -> Sample:
        """Return the seconds of a step by Eq. 1: the slower of source and step."""
        pairs = zip(runs[factor], downs.values, strict=True)
        return Sample(tuple(max(steps.up / factor, t_down) for steps, t_down in pairs))

    walls = {e: Sample(tuple(steps.wall for steps in runs[e])) for e in runs}
    rows = [
        Row(
            f"time of a step, e = {e}",
            walls[e].times(1e3),
            "ms",
            predicted(e).times(1e3),
            "Eq. 1",
            target="<= 1.03" if predicted(e).median > downs.median else "",
        )
        for e in runs
    ]
    rows += [
        Row(
            f"speedup over e = 1, e = {e}",
            walls[1] / walls[e],
            "x",
            predicted(1) / predicted(e),
            "Eq. 1",
        )
        for e in runs
        if e > 1
    ]
    rows += [
        Row(
            f"share of the time in which the GPU waits, e = {e}",
            Sample(tuple(1 - value for value in (downs / walls[e]).values)),
            "",
            limit_name=f"Eq. 1: {1 - (downs / predicted(e)).median:.2f}",
        )
        for e in runs
    ]
    rows += [
        Row(f"steps a second, e = {e}", Sample(tuple(1 / wall for wall in walls[e].values)), "/s")
        for e in runs
    ]
    report.add(f"Training a ResNet-50, batches of {source.batch}", rows)
    ratio = Sample(tuple(steps.up for steps in runs[1])) / downs
    report.note(
        f"training: a step takes {1e3 * downs.median:.1f} ms with a resident batch, "
        f"R = {ratio.median:.2f}; images are {source.codec.name}, decoded by {source.workers} "
        f"process(es), each {source.work} time(s)"
    )
