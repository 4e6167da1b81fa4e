"""One training run, from the first batch to the target or to the end of the budget."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch.nn.utils import clip_grad_norm_
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from paper.conditions import Condition, Job
from paper.workload import Batch, Workload
from pyecho.torch import EchoLoader

AVERAGE_DECAY = 0.98
MAX_GRADIENT_NORM = 1.0
TESTED_EVERY = 20


@dataclass(frozen=True)
class Point:
    """A test on held-out data."""

    step: int
    fresh: int
    """Examples read from the source: what the paper counts."""
    seconds: float
    held_out: float


@dataclass
class Result:
    """What a run came to."""

    reached: bool = False
    fresh: float = float("nan")
    """Examples read when the target was crossed, between two tests."""
    used: float = float("nan")
    """The same without those that waited in the shuffle buffer or ahead of it."""
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
        """Return what `as_json` was made of."""
        return cls(**{**stored, "curve": [Point(*row) for row in stored["curve"]]})


def crossing(curve: list[Point], target: float) -> tuple[float, float, float] | None:
    """Return step, fresh examples and seconds at which the target was crossed for the first time.

    They are interpolated between the two tests on either side; None if it never was.
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
    """Augment in the source, which is to say once for each fresh example."""
    rng = np.random.default_rng([seed, 1])
    for batch in batches:
        yield workload.augment(batch, rng)


def new_loader(workload: Workload, condition: Condition, seed: int, source: Any) -> EchoLoader:
    """Return the loader of a variant, over a source of batches, or of examples if it is given.

    The baseline is the same loader with a factor of 1.
    """
    size = condition.batch_size
    before = condition.variant == "before" and workload.augmented
    unbatch = condition.variant != "batch" and source is None
    if source is None:
        source = workload.batches(size, seed)
    if not before and workload.augmented:
        source = augmented(workload, source, seed)
    return EchoLoader(
        source,
        condition.factor,
        batch_size=None if condition.variant == "batch" else size,
        unbatch=unbatch,
        shuffle_buffer=condition.shuffle_buffer,
        augment=workload.augment if before else None,
        seed=seed,
        threads=1,
    )


def train(workload: Workload, job: Job, source: Any = None) -> Result:
    """Train from new weights; a slow `source` of examples may take the place of the usual one."""
    condition, goal = job.condition, job.goal
    torch.manual_seed(job.seed)
    network = workload.network()
    optimizer = workload.optimizer(network, job.rate)
    # A running average keeps the noise of single steps out of the moment of crossing.
    decay = get_ema_multi_avg_fn(AVERAGE_DECAY)  # type: ignore[no-untyped-call]
    average = AveragedModel(network, multi_avg_fn=decay)
    most_steps = goal.budget * condition.factor // condition.batch_size
    # With batch echoing the loader counts batches.
    rows = condition.batch_size if condition.variant == "batch" else 1
    result = Result()
    busy = 0.0
    with new_loader(workload, condition, job.seed, source) as loader:
        start = time.perf_counter()
        for step, batch in enumerate(loader, 1):
            received = time.perf_counter()
            optimizer.zero_grad()
            workload.loss(network, batch).backward()  # type: ignore[no-untyped-call]
            clip_grad_norm_(network.parameters(), MAX_GRADIENT_NORM)
            optimizer.step()
            average.update_parameters(network)
            if step % TESTED_EVERY == 0 or step >= most_steps:
                with torch.inference_mode():
                    held_out = workload.held_out(average)
                seconds = time.perf_counter() - start
                point = Point(step, loader.stats().fresh * rows, seconds, held_out)
                result.curve.append(point)
                result.reached = goal.target is not None and held_out <= goal.target
            now = time.perf_counter()
            busy += now - received
            if result.reached or step >= most_steps:
                break
        result.wall_seconds = time.perf_counter() - start
    result.held_out = result.curve[-1].held_out
    result.busy_seconds = busy / result.curve[-1].step
    if goal.target is not None and (crossed := crossing(result.curve, goal.target)) is not None:
        result.steps, result.fresh, result.seconds = crossed
        result.used = result.steps * condition.batch_size / condition.factor
    return result
