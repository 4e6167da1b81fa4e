"""Example echoing against bare memcpy of the same rows.

The stage has as many workers as a loader would have; with none, the consumer makes the batches. The
limit for the targets copies with as many threads, at least one. The stage also has a producer and a
consumer, which copies while it waits, so the other limit is bare memcpy on every core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from functools import partial

from pyecho._core import available_cores
from pyecho.bench import _races
from pyecho.bench.row import Row
from pyecho.bench.sampling import interleaved
from pyecho.config import Config

TINY_ROW_BYTES = 256
LARGE_ROW_BYTES = 100_000
BYTES_EMITTED = 1 << 30
"""About as many in a measurement."""


@dataclass(frozen=True)
class Workload:
    """The rows to echo."""

    row_bytes: int
    factor: int = 4
    batch_size: int = 256
    shuffle_buffer: int | None = None
    threads: int | None = None
    """Of the loader: None for as many as it would have."""

    def name(self) -> str:
        """Return the size of a row, and the other fields that differ from their defaults."""
        varied = [
            f"{field.name.replace('_', ' ')} {getattr(self, field.name):,}"
            for field in fields(self)[1:]
            if getattr(self, field.name) != field.default
        ]
        return ", ".join([f"gather {self.row_bytes:,} B rows", *varied])

    @property
    def pool(self) -> int:
        """Rows of the pool, by default 4,096 rows, or 512 large ones."""
        return self.shuffle_buffer or (512 if self.row_bytes >= LARGE_ROW_BYTES else 4096)

    @property
    def workers(self) -> int:
        """The number of threads that make batches; 0 if the consumer makes them."""
        return Config(batch_size=self.batch_size, threads=self.threads).threads_for(self.row_bytes)

    @property
    def fresh(self) -> int:
        """The number of rows to read.

        At least eight pools full, because only the producer works while the pool is filled. The
        number is bounded, so that a measurement ends.
        """
        rows = BYTES_EMITTED // (self.row_bytes * self.factor)
        return max(min(rows, 6_000_000 // self.factor), 8 * self.pool, self.batch_size)


def measure(rounds: int, workloads: Iterable[Workload]) -> list[Row]:
    """Compare with bare memcpy, with as many threads and on every core, for each workload."""
    return [row for workload in workloads for row in _rows(rounds, workload)]


def _rows(rounds: int, workload: Workload) -> list[Row]:
    race = _races.GatherRace(
        row_bytes=workload.row_bytes,
        batch_size=workload.batch_size,
        shuffle_buffer=workload.pool,
        factor=workload.factor,
        fresh=workload.fresh,
        threads=workload.workers,
    )
    what, threads, cores = workload.name(), max(1, workload.workers), available_cores()
    contestants: dict[str, Callable[[], float]] = {
        "memcpy": partial(race.memcpy_seconds, threads),
        "echo": race.echo_seconds,
        "all": partial(race.memcpy_seconds, cores),
    }
    echo, memcpy, best = (
        sample.times(1e9 / (workload.fresh * workload.factor))
        for sample in interleaved(what, rounds, contestants).values()
    )
    row = Row(what, echo, "ns", memcpy, f"memcpy, {_threads(threads)}", memcpy / echo, ">= 0.90")
    if workload.row_bytes <= TINY_ROW_BYTES:
        over = f"{what}, over memcpy"
        row = replace(row, what=over, measured=echo - memcpy, target="<= 25 ns")
    elif workload.row_bytes >= LARGE_ROW_BYTES:
        row = replace(row, target=">= 0.95")
    limit = f"memcpy, {_threads(cores)}"
    return [row, Row(f"{what}, of all cores", echo, "ns", best, limit, best / echo)]


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count > 1 else ''}"
