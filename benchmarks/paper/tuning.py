"""The search for a condition's learning rate: plain arithmetic on the runs of the tuning seed."""

from __future__ import annotations

import math
from collections.abc import Mapping

from paper.conditions import Goal, Job
from paper.train import Result

TUNING_SEED = 0
"""Never reported."""
MOST_DOUBLINGS = 5
"""Maximum distance of the search from the first rate, either way."""


def rate_of(first: float, doublings: int) -> float:
    """Return a rate of the grid: the first one, doubled `doublings` times (halved if negative)."""
    return first * 2.0**doublings


def best(costs: Mapping[int, float]) -> int:
    """Return the doublings with the lowest cost. Of equal ones, return the lowest rate."""
    return min(costs, key=lambda doublings: (costs[doublings], doublings))


def next_doublings(costs: Mapping[int, float]) -> int | None:
    """Return the next rate to try, or None once the best is between two worse ones.

    The search walks towards lower cost from the first rate, so that no condition is limited by the
    end of a grid made for another one. Until a run reaches the target, it tries both sides in turn.
    """
    if not costs:
        return 0
    if all(math.isinf(cost) for cost in costs.values()):
        ahead = [min(costs) - 1, max(costs) + 1]
        ahead.sort(key=abs)
    else:
        ahead = [best(costs) - 1, best(costs) + 1]
    allowed = (d for d in ahead if d not in costs and abs(d) <= MOST_DOUBLINGS)
    return next(allowed, None)


def cost(goal: Goal, result: Result) -> float:
    """Return the cost to minimise: fresh examples to the target, or the measure at the end."""
    if goal.target is None:
        return result.held_out if math.isfinite(result.held_out) else math.inf
    return result.used if result.reached else math.inf


def raced(job: Job, costs: Mapping[int, float], tested_every: int) -> Job:
    """Return the job with a budget no larger than the need of the best rate so far.

    A run that has not reached the target by then cannot become the best, so it is cut short.
    """
    lowest = min(costs.values(), default=math.inf)
    if job.goal.target is None or math.isinf(lowest):
        return job
    # One more test, because the crossing lies between two tests.
    margin = tested_every * job.condition.batch_size / job.condition.factor
    budget = min(job.goal.budget, math.ceil(lowest + margin))
    return Job(job.condition, Goal(job.goal.target, budget), job.rate, job.seed, job.timed)
