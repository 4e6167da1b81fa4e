"""Measures the cost of a group: epochs of two ranks with equally many batches, and of two without.

    python benchmarks/ranks.py [--rounds 5] [--epochs 100] [--json FILE]

Needs torch. Two processes over gloo read arrays of unequal lengths. In each round, each iterates a
loader without a group for some short epochs, then one with a group, and meets the other before and
after. Prints the time of an epoch of both, and what the ranks say. Other programs on the machine
disturb it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from pyecho.tools import info

ROWS = (4096, 4000)
"""Rows of each rank, so that the second one uses some of them more often."""


def run_rank(rank: int, folder: str, rounds: int, epochs: int, results: Any) -> None:
    """Measure, as one of the ranks."""
    import torch
    import torch.distributed as dist

    from pyecho.torch import EchoLoader
    from pyecho.torch.distributed import TorchGroup

    class Counting(TorchGroup):
        calls = numbers = 0

        def gather(self, values: list[int]) -> list[list[int]]:
            self.calls += 1
            self.numbers += len(values)
            return super().gather(values)

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    rows = np.full((ROWS[rank], 16), rank, np.float32)
    together = Counting(dist.group.WORLD)
    loaders = {
        "alone": EchoLoader(rows, 2, batch_size=32),
        "group": EchoLoader(rows, 2, batch_size=32, group=together),
    }
    for _ in range(rounds):
        found: dict[str, float] = {"rank": rank}
        for name, loader in loaders.items():
            together.calls = together.numbers = 0
            dist.barrier()
            began = time.perf_counter()
            batches = sum(1 for _ in range(epochs) for _ in loader)
            dist.barrier()
            found[f"{name}_seconds"] = (time.perf_counter() - began) / epochs
            found[f"{name}_batches"] = batches / epochs
        found["messages"] = together.calls / epochs
        found["bytes"] = 8 * together.numbers / epochs
        results.put(found)
    dist.destroy_process_group()


def main() -> int:
    """Print the results; return 1 if ranks of a group had other numbers of batches or messages."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        shared = (folder, arguments.rounds, arguments.epochs, results)
        ranks = [context.Process(target=run_rank, args=(rank, *shared)) for rank in range(2)]
        for process in ranks:
            process.start()
        found = [results.get(timeout=600) for _ in range(2 * arguments.rounds)]
        for process in ranks:
            process.join()
    facts = info.collect()
    print("| What | Median [lowest, highest] |\n|---|---|")
    names = {"alone_seconds": "an epoch without a group, ms", "group_seconds": "with one, ms"}
    for name, text in names.items():
        _print_row(text, [1e3 * each[name] for each in found], ".2f")
    for name in ("alone_batches", "group_batches", "messages", "bytes"):
        what = f"{name.replace('_', ', ')} of an epoch, one rank"
        _print_row(what, [each[name] for each in found], "g")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"facts": facts, "rounds": found}, indent=2) + "\n")
    return int(len({(each["group_batches"], each["messages"]) for each in found}) > 1)


def _print_row(name: str, values: list[float], form: str) -> None:
    print(f"| {name} | {median(values):{form}} [{min(values):{form}}, {max(values):{form}}] |")


if __name__ == "__main__":
    sys.exit(main())
