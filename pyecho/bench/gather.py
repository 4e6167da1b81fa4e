"""Example echoing against bare memcpy of the same rows with the same threads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyecho import _core
from pyecho.bench.row import Row
from pyecho.bench.sampling import Progress, Sample, interleaved, steps_of
from pyecho.options import checked_threads

TINY_ROW_BYTES = 256
LARGE_ROW_BYTES = 100_000


@dataclass(frozen=True)
class Workload:
    """What is echoed."""

    row_bytes: int
    batch_size: int = 256
    capacity: int = 4096
    factor: int = 4
    threads: int = 1

    def name(self) -> str:
        """Return what it is; all but the size of a row only where it is not as usual."""
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

    def fresh(self, bytes_emitted: int) -> int:
        """Return how many rows have to be read: two pools full at least, but not for ever."""
        rows = bytes_emitted // (self.row_bytes * self.factor)
        return min(max(rows, 2 * self.capacity, self.batch_size), 6_000_000 // self.factor)


def default_workloads() -> list[Workload]:
    """Return tiny, small and large rows."""
    threads = checked_threads(None)
    return [
        Workload(256, threads=threads),
        Workload(3072, threads=threads),
        Workload(150_528, capacity=1024, threads=threads),
    ]


def measure(
    rounds: int, progress: Progress, workloads: Iterable[Workload], bytes_emitted: int = 1 << 30
) -> list[Row]:
    """Compare both for each workload."""
    chosen = list(workloads)
    progress.begin("gather", steps_of(rounds, 2 * len(chosen)))
    return [_row(rounds, progress, workload, bytes_emitted) for workload in chosen]


def _row(rounds: int, progress: Progress, workload: Workload, bytes_emitted: int) -> Row:
    fresh = workload.fresh(bytes_emitted)
    race = _core.GatherRace(
        row_bytes=workload.row_bytes,
        batch_size=workload.batch_size,
        capacity=workload.capacity,
        factor=workload.factor,
        fresh=fresh,
        threads=workload.threads,
    )
    samples = interleaved(
        rounds, {"memcpy": race.memcpy_seconds, "echo": race.echo_seconds}, progress
    )
    per_example = {
        name: sample.times(1e9 / (fresh * workload.factor)) for name, sample in samples.items()
    }
    echo, memcpy = per_example["echo"], per_example["memcpy"]
    what = workload.name()
    if workload.row_bytes <= TINY_ROW_BYTES:
        extra = Sample(tuple(a - b for a, b in zip(echo.values, memcpy.values, strict=True)))
        target = "<= 25 ns over memcpy"
        return Row(
            f"{what}, over memcpy", extra, "ns", memcpy, "bare memcpy", echo / memcpy, target
        )
    target = ">= 0.95" if workload.row_bytes >= LARGE_ROW_BYTES else ">= 0.90"
    return Row(what, echo, "ns", memcpy, "bare memcpy", memcpy / echo, target)
