"""The measured workloads, and pyecho's target in each."""

from __future__ import annotations

from dataclasses import dataclass

from peers.workload import Work

FACTOR = 4
BATCH = 256


@dataclass(frozen=True)
class Planned:
    """A workload with its name for the command line."""

    name: str
    title: str
    shape: tuple[int, ...]
    pool: int
    passes_of_pool: int
    """The source has this many pools of examples."""
    kind: str = "examples"
    target: float | None = None
    """Ratio of the speed of pyecho to that of each peer that is wanted."""

    def work(self, threads: int) -> Work:
        """Return the work for `threads` cores, with a pool that divides evenly among them."""
        step = BATCH * threads
        pool = -(-self.pool // step) * step
        return Work(
            title=self.title,
            kind="batches" if self.kind == "batches" else "examples",
            shape=self.shape,
            rows=pool * self.passes_of_pool,
            pool=pool,
            factor=FACTOR,
            batch=BATCH,
            threads=threads,
        )


PLANNED = (
    Planned("batch", "Batch echoing, by reference", (32, 32, 3), 4096, 1, "batches"),
    Planned("256B", "Example echoing, 256 B rows", (256,), 4096, 4),
    Planned("3KB", "Example echoing, 3 KB rows (32x32x3)", (32, 32, 3), 4096, 4, target=4.0),
    Planned(
        "150KB", "Example echoing, 150 KB rows (224x224x3)", (224, 224, 3), 1024, 2, target=1.5
    ),
)
