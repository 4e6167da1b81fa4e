"""Example echoing against bare memcpy of the same rows.

The stage has as many workers as a loader would have; with none, the consumer makes the batches. The
limit for the targets copies with as many threads, at least one. The stage also has a producer and a
consumer, which copies while it waits, so the other limit is bare memcpy on every core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from pyecho import _core
from pyecho.bench.row import Row
from pyecho.bench.sampling import Progress, Sample, interleaved, steps_of
from pyecho.config import Config, available_cores

TINY_ROW_BYTES = 256
LARGE_ROW_BYTES = 100_000


@dataclass(frozen=True)
class Workload:
    """The rows to echo."""

    row_bytes: int
    batch_size: int = 256
    capacity: int = 4096
    factor: int = 4
    threads: int | None = None  # as many workers as a loader would have

    def name(self) -> str:
        """Return the size of a row, and the other fields that differ from their defaults."""
        name = f"gather {self.row_bytes:,} B rows"
        for field, text in (
            ("factor", f"e = {self.factor}"),
            ("batch_size", f"batch {self.batch_size:,}"),
            ("capacity", f"capacity {self.capacity:,}"),
            ("threads", f"{self.threads} threads"),
        ):
            if getattr(self, field) != getattr(type(self), field):
                name += f", {text}"
        return name

    @property
    def workers(self) -> int:
        """The number of threads that make batches; 0 if the consumer makes them."""
        return Config(batch_size=self.batch_size, threads=self.threads).threads_for(self.row_bytes)

    def fresh(self, bytes_emitted: int) -> int:
        """Return the number of rows to read.

        At least eight pools full, because only the producer works while the pool is filled. The
        number is bounded, so that a measurement ends.
        """
        rows = bytes_emitted // (self.row_bytes * self.factor)
        return max(min(rows, 6_000_000 // self.factor), 8 * self.capacity, self.batch_size)


def default_workloads() -> list[Workload]:
    """Return tiny, small and large rows."""
    return [Workload(256), Workload(3072), Workload(150_528, capacity=512)]


def measure(
    rounds: int,
    progress: Progress,
    workloads: Iterable[Workload],
    bytes_emitted: int = 1 << 30,
    *,
    every_core: bool = False,
) -> list[Row]:
    """Compare both for each workload; with `every_core`, also with bare memcpy on every core."""
    chosen = list(workloads)
    sides = 3 if every_core else 2
    progress.begin("gather", steps_of(rounds, sides * len(chosen)))
    rows = []
    for workload in chosen:
        rows += _rows(rounds, progress, workload, bytes_emitted, every_core)
    return rows


def _rows(
    rounds: int, progress: Progress, workload: Workload, bytes_emitted: int, every_core: bool
) -> list[Row]:
    fresh = workload.fresh(bytes_emitted)
    race = _core.GatherRace(
        row_bytes=workload.row_bytes,
        batch_size=workload.batch_size,
        capacity=workload.capacity,
        factor=workload.factor,
        fresh=fresh,
        threads=workload.workers,
    )
    contestants: dict[str, Callable[[], float]] = {
        "memcpy": partial(race.memcpy_seconds, max(1, workload.workers)),
        "echo": race.echo_seconds,
    }
    if every_core:
        contestants["all"] = partial(race.memcpy_seconds, available_cores())
    samples = interleaved(rounds, contestants, progress)
    per_example = {
        name: sample.times(1e9 / (fresh * workload.factor)) for name, sample in samples.items()
    }
    rows = [_row(workload, per_example["echo"], per_example["memcpy"])]
    if every_core:
        rows.append(
            Row(
                f"{workload.name()}, of all cores",
                per_example["echo"],
                "ns",
                per_example["all"],
                f"memcpy, {_threads(available_cores())}",
                per_example["all"] / per_example["echo"],
            )
        )
    return rows


def _row(workload: Workload, echo: Sample, memcpy: Sample) -> Row:
    what, limit_name = workload.name(), f"memcpy, {_threads(max(1, workload.workers))}"
    if workload.row_bytes <= TINY_ROW_BYTES:
        extra = Sample(tuple(a - b for a, b in zip(echo.values, memcpy.values, strict=True)))
        target = "<= 25 ns"
        return Row(f"{what}, over memcpy", extra, "ns", memcpy, limit_name, memcpy / echo, target)
    target = ">= 0.95" if workload.row_bytes >= LARGE_ROW_BYTES else ">= 0.90"
    return Row(what, echo, "ns", memcpy, limit_name, memcpy / echo, target)


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count > 1 else ''}"
