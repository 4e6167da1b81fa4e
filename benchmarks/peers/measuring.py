"""One workload through all contestants: checked, then measured in turns."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from peers.process import WorkerFailed
from peers.roster import Contestant
from peers.workload import Work
from pyecho.bench.sampling import Sample, interleaved

IDLE_CPU_SHARE = 0.02
"""Of a core. A contestant that uses more between its turns takes it from the others."""
LARGEST_STEP = 32.0


class Asked(Protocol):
    """A contestant's process."""

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send a request and return the answer, or raise `WorkerFailed`."""


@dataclass
class Result:
    """The result of one contestant with one workload."""

    contestant: Contestant
    threads: int = 0
    """That it was told to use."""
    batches: int = 0
    """Timed in each round."""
    rate: Sample | None = None
    """Of emitted examples (in batch echoing: batches) in a second."""
    exact: bool = False
    uses: tuple[int, int] = (0, 0)
    distinct: float = 0.0
    mixing: float = 0.0
    idle_cpu_share: float = 0.0
    failure: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return all but the sample, which the report has."""
        contestant = {"contestant": self.contestant.name, "limit": self.contestant.limit}
        return contestant | {
            name: value for name, value in vars(self).items() if name not in ("contestant", "rate")
        }


@dataclass
class Outcome:
    """The results of all contestants with one workload."""

    work: Work
    results: dict[str, Result] = field(default_factory=dict)

    def rate(self, name: str) -> Sample | None:
        """Return a contestant's rate, or None if it has none."""
        result = self.results.get(name)
        return result.rate if result else None

    def faster(self, name: str, than: str) -> Sample | None:
        """Return how many times as fast one is as the other, round by round."""
        mine, other = self.rate(name), self.rate(than)
        return mine / other if mine and other else None


def measure(
    work: Work,
    processes: Mapping[str, Asked],
    contestants: Sequence[Contestant],
    *,
    rounds: int,
    seconds: float,
) -> Outcome:
    """Check and measure all contestants that can do this work.

    A contestant that fails is excluded, with its reason; the others continue.
    """
    outcome = Outcome(work)
    taking_part = [each for each in contestants if each.function(work.kind)]
    for contestant in taking_part:
        outcome.results[contestant.name] = _checked(
            work, processes[contestant.name], contestant, seconds
        )
    while True:
        ready = [result for result in outcome.results.values() if not result.failure]
        turns = {
            result.contestant.name: _turn(work, processes[result.contestant.name], result)
            for result in ready
        }
        try:
            samples = interleaved(work.title, rounds, turns)
        except _Out as out:
            out.result.failure = str(out)
            continue  # the remaining contestants restart, so that all samples have the same rounds
        for name, sample in samples.items():
            outcome.results[name].rate = sample
        break
    for contestant in taking_part:
        try:
            processes[contestant.name].ask("release")
        except WorkerFailed as failure:
            result = outcome.results[contestant.name]
            result.failure = result.failure or str(failure)
    return outcome


def batches_for(seconds_for: Callable[[int], float], period: int, wanted: float) -> int:
    """Return how many batches take about the wanted seconds: whole periods, at least one."""
    batches = period
    taken = seconds_for(batches)
    while taken < wanted / 4:
        growth = min(LARGEST_STEP, max(2.0, wanted / max(taken, 1e-9)))
        batches = math.ceil(batches * growth / period) * period
        taken = seconds_for(batches)
    return max(1, round(batches * wanted / taken / period)) * period


class _Out(Exception):
    """A contestant failed during the rounds."""

    def __init__(self, result: Result, why: str) -> None:
        super().__init__(why)
        self.result = result


def _checked(work: Work, process: Asked, contestant: Contestant, seconds: float) -> Result:
    """Check the contestant's output, and choose its threads and the number of timed batches."""
    result = Result(contestant)
    threads = sorted({1, work.threads}) if contestant.tuned else [work.threads]
    try:
        best = 0.0
        for number in threads:
            batches, rate = _calibrated(work, process, contestant, number, seconds)
            if rate > best:
                best, result.threads, result.batches = rate, number, batches
        if result.threads != threads[-1]:
            _prepare(work, process, contestant, result.threads)
        if not contestant.limit:
            found = process.ask("check")
            result.exact, result.uses = found["exact"], tuple(found["uses"])
            result.distinct, result.mixing = found["distinct"], found["mixing"]
            if contestant.exact and not result.exact:
                low, high = result.uses
                raise WorkerFailed(f"examples were used {low} to {high} times, not {work.factor}")
    except WorkerFailed as failure:
        result.failure = str(failure)
    return result


def _calibrated(
    work: Work, process: Asked, contestant: Contestant, threads: int, seconds: float
) -> tuple[int, float]:
    """Return the number of batches to time with this number of threads, and their rate."""
    rate = 0.0

    def seconds_for(batches: int) -> float:
        nonlocal rate
        taken = float(process.ask("measure", batches=batches)["seconds"])
        rate = batches / taken
        return taken

    _prepare(work, process, contestant, threads)
    return batches_for(seconds_for, work.period, seconds), rate


def _prepare(work: Work, process: Asked, contestant: Contestant, threads: int) -> None:
    fields = dataclasses.replace(work, threads=threads).as_json()
    process.ask("prepare", work=fields, function=contestant.function(work.kind))


def _turn(work: Work, process: Asked, result: Result) -> Callable[[], float]:
    rows = work.batch if work.kind == "examples" else 1

    def measured() -> float:
        try:
            answer = process.ask("measure", batches=result.batches)
        except WorkerFailed as failure:
            raise _Out(result, str(failure)) from failure
        result.idle_cpu_share = max(result.idle_cpu_share, answer["idle_cpu_share"] or 0.0)
        return float(result.batches * rows / answer["seconds"])

    return measured
