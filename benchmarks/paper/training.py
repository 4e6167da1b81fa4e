"""Training runs, from the first batch to the target or the end of the budget, and their rates."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch.nn.utils import clip_grad_norm_
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from paper.drift import DriftingLoader
from paper.workloads import Batch, Workload, workload
from pyecho.torch import EchoLoader

BUFFERED_BATCHES = 10
"""The shuffle buffer of every baseline, in batches."""
TUNING_SEED = 0
"""Never reported."""
Run = dict[str, Any]


class Condition(NamedTuple):
    """All that the learning rate is tuned again for."""

    workload: str
    variant: Literal["batch", "after", "before", "adaptive"]
    """Where the echo stage stands: after batching, after augmentation, before augmentation; the
    last one with a factor that adapts itself, up to `factor`."""
    factor: int
    batch_size: int
    shuffle_buffer: int
    """Of the echoing loader: examples, or batches with batch echoing."""
    drifts: bool = False
    """True if the speed of the source drifts, in simulated time."""


class Goal(NamedTuple):
    """When a run ends: at the target, or when a budget of fresh examples is used up."""

    target: float | None
    budget: int


class Loaders:
    """The loader for training, and the loader that reads the source; mostly the same one.

    The baseline is the loader of example echoing with a factor of 1. Batch echoing repeats the
    batches of the baseline's loader, because the paper also keeps the baseline's buffer.
    """

    clock = staticmethod(time.perf_counter)

    def __init__(self, data: Workload, condition: Condition, seed: int, source: Any = None) -> None:
        _, variant, factor, size, buffer, _ = condition
        whole = variant == "batch"
        examples = data.batches(size, seed) if source is None else source
        if variant == "after" and data.augmented:
            examples = _augmented(data, examples, seed)
        self.first = EchoLoader(
            examples,
            1 if whole else factor,
            batch_size=size,
            unbatch=source is None,
            shuffle_buffer=BUFFERED_BATCHES * size if whole else buffer,
            augment=data.augment if variant != "after" and data.augmented else None,
            seed=seed,
            threads=1,
        )
        self.last = self.first
        if whole:
            self.last = EchoLoader(self.first, factor, shuffle_buffer=buffer, seed=seed)

    @property
    def fresh(self) -> int:
        """Examples read from the source."""
        return self.first.stats().fresh

    def close(self) -> None:
        """End their threads."""
        self.last.close()
        self.first.close()


def _augmented(data: Workload, batches: Iterable[Batch], seed: int) -> Iterator[Batch]:
    """Augment in the source, so once for each fresh example."""
    rng = np.random.default_rng([seed, 1])
    for batch in batches:
        yield data.augment(batch, rng)


def train(condition: Condition, goal: Goal, rate: float, seed: int, source: Any = None) -> Run:
    """Train from new weights; a slow `source` of examples may take the place of the usual one.

    Returns `reached`, `held_out` at the last test, and `busy_seconds` of a step, tests included; at
    the moment when the target was crossed, between two tests, `seconds`, the `fresh` examples read
    from the source, and those `used`, which leaves out what waited in the shuffle buffer.
    """
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    data = workload(condition.workload)
    network = data.network()
    optimizer = data.optimizer(network, rate)
    # With a running average, the noise of single steps does not decide the moment of crossing.
    average = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(data.average_decay))
    most_steps = max(1, goal.budget * condition.factor // condition.batch_size)
    curve: list[tuple[float, ...]] = []
    reached, busy = False, 0.0
    make: Callable[..., Any] = DriftingLoader if condition.drifts else Loaders
    with closing(make(data, condition, seed, source)) as loaders:
        start = loaders.clock()
        for step, batch in enumerate(loaders.last, 1):
            received = time.perf_counter()
            optimizer.zero_grad()
            data.loss(network, batch).backward()
            clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            average.update_parameters(network)
            if step % data.tested_every == 0 or step >= most_steps:
                with torch.inference_mode():
                    held_out = data.held_out(average)
                curve.append((held_out, step, loaders.fresh, loaders.clock() - start))
                reached = goal.target is not None and held_out <= goal.target
            busy += time.perf_counter() - received
            if reached or step >= most_steps:
                break
    run = {"reached": reached, "held_out": curve[-1][0], "busy_seconds": busy / step}
    if reached:
        step, run["fresh"], run["seconds"] = _crossing(curve[-2:], goal.target)
        uses = step * condition.batch_size
        adaptive = condition.variant == "adaptive"
        run["used"] = run["fresh"] if adaptive else uses / condition.factor
    return run


def _crossing(tests: list[tuple[float, ...]], target: float) -> list[float]:
    """Return what `tests` have beside a measure when it crossed the target, between both tests."""
    (before, *lows), (after, *highs) = tests[0], tests[-1]
    share = (before - target) / (before - after) if len(tests) == 2 else 1.0
    return [low + share * (high - low) for low, high in zip(lows, highs, strict=True)]


def tune(condition: Condition, goal: Goal, doublings: int) -> list[tuple[float, float | None]]:
    """Return learning rates with their costs, the best one first; None if it missed the target.

    The search walks towards lower cost from the workload's rate, by at most so many `doublings`
    either way, so that no condition is limited by the end of a grid made for another one. Until a
    run reaches the target, it tries both sides in turn. A run that has used more than the best one
    so far is cut short.
    """
    data = workload(condition.workload)
    costs: dict[int, float] = {}
    while (at := next_doublings(costs, doublings)) is not None:
        lowest, budget = min(costs.values(), default=math.inf), goal.budget
        if goal.target is not None and lowest < math.inf:
            # One more test, because the crossing lies between two tests.
            margin = data.tested_every * condition.batch_size / condition.factor
            budget = min(budget, math.ceil(lowest + margin))
        rate = data.rate * 2.0**at
        run = train(condition, Goal(goal.target, budget), rate, TUNING_SEED)
        cost = run["held_out"] if goal.target is None else run.get("used", math.inf)
        costs[at] = cost if math.isfinite(cost) else math.inf
    ranked = sorted(costs, key=lambda at: (costs[at], at))
    found = [(data.rate * 2.0**each, costs[each]) for each in ranked]
    return [(rate, cost if math.isfinite(cost) else None) for rate, cost in found]


def next_doublings(costs: dict[int, float], most: int) -> int | None:
    """Return the next rate to try, or None once the best is between two worse ones."""
    if not costs:
        return 0
    if all(math.isinf(cost) for cost in costs.values()):
        ahead = sorted((min(costs) - 1, max(costs) + 1), key=abs)
    else:
        best = min(costs, key=lambda at: (costs[at], at))
        ahead = [best - 1, best + 1]
    allowed = (each for each in ahead if each not in costs and abs(each) <= most)
    return next(allowed, None)
