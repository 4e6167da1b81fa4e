"""One training run, from the first batch to the target or to the end of the budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch.nn.utils import clip_grad_norm_
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from paper.conditions import BUFFERED_BATCHES, Condition, Job
from paper.drift import DriftingLoader
from paper.workload import Batch, Workload
from pyecho.torch import EchoLoader

MAX_GRADIENT_NORM = 1.0


@dataclass(frozen=True)
class Point:
    """A test on held-out data."""

    step: int
    fresh: int
    """Examples read from the source, as counted in the paper."""
    seconds: float
    held_out: float


@dataclass
class Result:
    """The result of a run."""

    reached: bool = False
    fresh: float = float("nan")
    """Examples read when the target was crossed, between two tests."""
    used: float = float("nan")
    """The same without the examples that waited in the shuffle buffer or ahead of it."""
    steps: float = float("nan")
    seconds: float = float("nan")
    held_out: float = float("nan")
    """At the last test."""
    busy_seconds: float = float("nan")
    """t_down: of a step, tests included."""
    upstream_seconds: float = float("nan")
    """t_up: of a fresh batch, where the source was slow."""
    wall_seconds: float = float("nan")
    """Of the whole run, for estimates."""
    curve: list[Point] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return plain types; the curve as rows, which is shorter."""
        return {**asdict(self), "curve": [list(asdict(point).values()) for point in self.curve]}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Result:
        """Return the result that `as_json` was called on."""
        return cls(**{**stored, "curve": [Point(*row) for row in stored["curve"]]})


def crossing(curve: list[Point], target: float) -> tuple[float, float, float] | None:
    """Return step, fresh examples and seconds at which the target was crossed for the first time.

    They are interpolated between the two adjacent tests. None if the target was never reached.
    """
    for before, after in zip([None, *curve], curve, strict=False):
        if after.held_out > target:
            continue
        if before is None:
            return after.step, after.fresh, after.seconds
        share = (before.held_out - target) / (before.held_out - after.held_out)

        def between(low: float, high: float, share: float = share) -> float:
            return low + share * (high - low)

        return (
            between(before.step, after.step),
            between(before.fresh, after.fresh),
            between(before.seconds, after.seconds),
        )
    return None


def augmented(workload: Workload, batches: Iterable[Batch], seed: int) -> Iterator[Batch]:
    """Augment in the source, so once for each fresh example."""
    rng = np.random.default_rng([seed, 1])
    for batch in batches:
        yield workload.augment(batch, rng)


@dataclass(frozen=True)
class Loaders:
    """The loader for training, and the loader that reads the source; mostly the same one."""

    last: EchoLoader
    first: EchoLoader

    clock: Callable[[], float] = time.perf_counter

    @property
    def fresh(self) -> int:
        """Examples read from the source."""
        return self.first.stats().fresh

    def close(self) -> None:
        """End their threads."""
        self.last.close()
        self.first.close()


def new_loaders(
    workload: Workload, condition: Condition, seed: int, source: Any = None
) -> Loaders | DriftingLoader:
    """Return a variant's loaders over the batches of a workload or a source of examples.

    The baseline is the loader of example echoing with a factor of 1. Batch echoing repeats the
    batches of the baseline's loader, because the paper also keeps the baseline's buffer.
    """
    if condition.drifts:
        return DriftingLoader(workload, condition, seed)
    size = condition.batch_size
    whole = condition.variant == "batch"
    in_source = condition.variant == "after" and workload.augmented
    in_loader = condition.variant != "after" and workload.augmented
    unbatch = source is None
    if source is None:
        source = workload.batches(size, seed)
    if in_source:
        source = augmented(workload, source, seed)
    first = EchoLoader(
        source,
        1 if whole else condition.factor,
        batch_size=size,
        unbatch=unbatch,
        shuffle_buffer=BUFFERED_BATCHES * size if whole else condition.shuffle_buffer,
        augment=workload.augment if in_loader else None,
        seed=seed,
        threads=1,
    )
    if not whole:
        return Loaders(first, first)
    last = EchoLoader(first, condition.factor, shuffle_buffer=condition.shuffle_buffer, seed=seed)
    return Loaders(last, first)


def train(workload: Workload, job: Job, source: Any = None) -> Result:
    """Train from new weights; a slow `source` of examples may take the place of the usual one."""
    condition, goal = job.condition, job.goal
    torch.manual_seed(job.seed)
    network = workload.network()
    optimizer = workload.optimizer(network, job.rate)
    # With a running average, the noise of single steps does not decide the moment of crossing.
    decay = get_ema_multi_avg_fn(workload.average_decay)  # type: ignore[no-untyped-call]
    average = AveragedModel(network, multi_avg_fn=decay)
    most_steps = goal.budget * condition.factor // condition.batch_size
    result = Result()
    busy = 0.0
    with closing(new_loaders(workload, condition, job.seed, source)) as loaders:
        start, begun = loaders.clock(), time.perf_counter()
        for step, batch in enumerate(loaders.last, 1):
            received = time.perf_counter()
            optimizer.zero_grad()
            workload.loss(network, batch).backward()  # type: ignore[no-untyped-call]
            clip_grad_norm_(network.parameters(), MAX_GRADIENT_NORM)
            optimizer.step()
            average.update_parameters(network)
            if step % workload.tested_every == 0 or step >= most_steps:
                with torch.inference_mode():
                    held_out = workload.held_out(average)
                seconds = loaders.clock() - start
                point = Point(step, loaders.fresh, seconds, held_out)
                result.curve.append(point)
                result.reached = goal.target is not None and held_out <= goal.target
            now = time.perf_counter()
            busy += now - received
            if result.reached or step >= most_steps:
                break
        result.wall_seconds = time.perf_counter() - begun
    result.held_out = result.curve[-1].held_out
    result.busy_seconds = busy / result.curve[-1].step
    if goal.target is not None and (crossed := crossing(result.curve, goal.target)) is not None:
        result.steps, result.fresh, result.seconds = crossed
        adaptive = condition.variant == "adaptive"
        uses = result.steps * condition.batch_size
        result.used = result.fresh if adaptive else uses / condition.factor
    return result
