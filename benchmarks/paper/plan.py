"""The runs to do, their order, and an estimate of their time. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paper.conditions import Condition, Goal, Job
from paper.experiments import WORKLOADS, Entry
from paper.network import RATIO
from paper.train import Result
from paper.tuning import TUNING_SEED, best, cost, next_doublings, raced, rate_of

EXPECTED_TRIALS = 4
"""Runs for the learning rate of one condition: mostly three to five."""


@dataclass(frozen=True)
class Setting:
    """A condition with its goal. Each setting has a learning rate of its own."""

    condition: Condition
    goal: Goal

    def job(self, rate: float, seed: int, *, timed: bool = False) -> Job:
        """Return a run of it."""
        return Job(self.condition, self.goal, rate, seed, timed)


@dataclass(frozen=True)
class Plan:
    """The settings of some figures, each once."""

    untimed: Sequence[Setting]
    timed: Sequence[Setting]
    seeds: Sequence[int]

    @property
    def tuned(self) -> list[Setting]:
        """All settings that need a learning rate, the longest first, for even loads."""
        every = list(dict.fromkeys([*self.untimed, *self.timed]))
        return sorted(every, key=lambda setting: -seconds(setting.job(0.0, 0)))


def planned(entries: Sequence[Entry], seeds: int) -> Plan:
    """Return the settings that the entries need. Figures with equal conditions share runs."""
    found: dict[bool, dict[Setting, None]] = {False: {}, True: {}}
    for entry in entries:
        for each in (entry.baseline, entry.condition):
            found[entry.timed][Setting(each, entry.goal)] = None
    return Plan(
        list(found[False]), list(found[True]), range(TUNING_SEED + 1, TUNING_SEED + 1 + seeds)
    )


Do = Callable[[Job], Result]
"""Runs a job, or finds that it has been run."""


def tune(setting: Setting, do: Do) -> dict[int, float]:
    """Search for the learning rate; return the cost of every one that was tried."""
    workload = WORKLOADS[setting.condition.workload]
    costs: dict[int, float] = {}
    while (doublings := next_doublings(costs)) is not None:
        trial = setting.job(rate_of(workload.rate, doublings), TUNING_SEED)
        job = raced(trial, costs, workload.tested_every)
        costs[doublings] = cost(setting.goal, do(job))
    return costs


def chosen_rate(setting: Setting, costs: dict[int, float]) -> float:
    """Return the learning rate of the reported runs."""
    return rate_of(WORKLOADS[setting.condition.workload].rate, best(costs))


def seconds(job: Job) -> float:
    """Estimate how long a job takes on a core of its own."""
    condition = job.condition
    workload = WORKLOADS[condition.workload]
    if job.goal.target is None:
        rows = float(job.goal.budget * condition.factor)
    else:
        larger = max(1.0, condition.batch_size / workload.batch_size)
        rows = workload.expected_fresh * larger**0.5 * condition.factor**0.4
    busy = rows * workload.seconds_per_row
    return busy * max(1.0, RATIO / condition.factor) if job.timed else busy


def total_seconds(plan: Plan, jobs: int) -> float:
    """Estimate the time of the whole plan with `jobs` processes."""
    trials = sum(EXPECTED_TRIALS * seconds(setting.job(0.0, 0)) for setting in plan.tuned)
    runs = sum(seconds(setting.job(0.0, 0)) for setting in plan.untimed) * len(plan.seeds)
    timed = sum(seconds(setting.job(0.0, 0, timed=True)) for setting in plan.timed)
    return (trials + runs) / jobs + timed * len(plan.seeds)
