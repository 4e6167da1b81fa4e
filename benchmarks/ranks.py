"""Measures the cost of a group: epochs of two ranks with equally many batches, and of two without.

Two processes over gloo read arrays of unequal lengths. They take turns with a loader without a
group and one with it, for some short epochs each, and meet before and after. Prints the time of an
epoch of both, and the messages of a rank. Exits with 1 if the ranks of a group had other numbers of
batches.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from common import finish, new_parser, new_report, sample

from pyecho.bench.row import Row
from pyecho.bench.sampling import Sample, seconds_of, turns
from pyecho.torch import EchoLoader
from pyecho.torch.distributed import TorchGroup

ROWS = (4096, 4000)
"""Rows of each rank, so that the second one uses some of them more often."""


class Counting(TorchGroup):
    """A group that counts its messages."""

    calls = 0

    def gather(self, values: list[int]) -> list[list[int]]:
        """Count and gather."""
        self.calls += 1
        return super().gather(values)


def run_rank(rank: int, folder: str, rounds: int, epochs: int, results: Any) -> None:
    """Measure, as one of the ranks."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    rows = np.full((ROWS[rank], 16), rank, np.float32)
    group = Counting(dist.group.WORLD)
    loaders = {"alone": EchoLoader(rows, 2, batch_size=32)}
    loaders["group"] = EchoLoader(rows, 2, batch_size=32, group=group)

    def epochs_of(loader: EchoLoader) -> tuple[float, ...]:
        batches, group.calls = 0, 0

        def iterate() -> None:
            nonlocal batches
            batches = sum(1 for _ in range(epochs) for _ in loader)
            dist.barrier()

        dist.barrier()
        seconds = seconds_of(iterate)
        return 1e3 * seconds / epochs, batches / epochs, group.calls / epochs

    contestants = {name: partial(epochs_of, loader) for name, loader in loaders.items()}
    results.put(turns("epochs", rounds, contestants))
    dist.destroy_process_group()


def main() -> int:
    """Measure and report."""
    options = new_parser(__doc__, rounds=5, epochs=100).parse_args()
    epochs = 2 if options.quick else options.epochs
    report = new_report("ranks", "Epochs of two ranks", options, epochs=epochs)
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        shared = (folder, options.rounds, epochs, results)
        ranks = [context.Process(target=run_rank, args=(rank, *shared)) for rank in range(2)]
        for process in ranks:
            process.start()
        found = [results.get(timeout=600) for _ in ranks]
        for process in ranks:
            process.join()

    def both(loader: str, place: int) -> Sample:
        return sample(each[place] for rank in found for each in rank[loader])

    alone, group, batches = both("alone", 0), both("group", 0), both("group", 1)
    report.add("Epochs", [Row("an epoch of a group", group, "ms", alone, "without a group")])
    report.add("Of an epoch, on each rank", [Row("batches", batches, "")])
    report.add("Of an epoch, on each rank", [Row("messages", both("group", 2), "")])
    finish(report, options)
    return int(batches.low < batches.high)


if __name__ == "__main__":
    sys.exit(main())
