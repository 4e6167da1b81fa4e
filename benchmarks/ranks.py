"""Two ranks with an adaptive factor, whose sources drift: is the run as fast as the slower one?

    python benchmarks/ranks.py [--rounds 5] [--seconds 10] [--json FILE]

Needs torch. Two processes over gloo read sources of the same length. The speed of each rises and
falls by a factor of three, so that now the one is slower and now the other, and one is slower on
the whole. In each round both read their sources alone, then train with a loader each, whose factor
they decide together; a step takes the same time on both, and ends when both have. Nothing can take
less time than the slower source. Prints how much longer the run took, the uses of an item, and the
collectives of the loader. Other programs on the machine disturb it.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from pyecho import Adaptive, info

LIMIT = 1.05
ROWS = 16
READ_SECONDS = (8e-3, 10e-3)
"""Time that each rank's source takes for as many rows, on average."""
STEP_SECONDS = 5e-3
BATCH_SIZE = 32


class Drifting:
    """A source of rows; a pause before some of them goes up and down."""

    def __init__(self, batches: int, seconds: float, phase: float) -> None:
        self.batches, self.seconds, self.phase = batches, seconds, phase

    def __len__(self) -> int:
        return self.batches * ROWS

    def __iter__(self) -> Iterator[Any]:
        for number in range(self.batches):
            wave = math.sin(2 * math.pi * (3 * number / self.batches + self.phase))
            time.sleep(self.seconds * (1 + wave / 2))
            for row in range(ROWS):
                yield np.full(16, self.phase * 1e6 + number * ROWS + row, np.float32)


def run_rank(rank: int, folder: str, rounds: int, seconds: float, results: Any) -> None:
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
    batches = int(seconds / max(READ_SECONDS))
    source = Drifting(batches, READ_SECONDS[rank], rank / 2)
    for _ in range(rounds):
        dist.barrier()
        began = time.perf_counter()
        for _ in source:
            pass
        read = time.perf_counter() - began
        group = Counting(dist.group.WORLD)
        loader = EchoLoader(source, Adaptive(8), batch_size=BATCH_SIZE, group=group)
        group.calls = group.numbers = 0  # those of an epoch
        dist.barrier()
        began = time.perf_counter()
        with loader:
            for _ in loader:
                time.sleep(STEP_SECONDS)
                dist.barrier()  # the gradients
            stats = loader.stats()
        results.put(
            {
                "rank": rank,
                "read": read,
                "run": time.perf_counter() - began,
                "batches": stats.batches,
                "factor": stats.effective_factor,
                "log": stats.log[0].tolist(),
                "collectives": group.calls,
                "bytes": 8 * group.numbers,
            }
        )
    dist.destroy_process_group()


def main() -> int:
    """Print the results; return 1 if the median is beyond the limit, or the logs differ."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10, help="that the slower source takes")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    found: list[Any] = [[], []]
    with tempfile.TemporaryDirectory() as folder:
        shared = (folder, arguments.rounds, arguments.seconds, results)
        ranks = [context.Process(target=run_rank, args=(rank, *shared)) for rank in range(2)]
        for process in ranks:
            process.start()
        for _ in range(2 * arguments.rounds):
            each = results.get(timeout=60 + 10 * arguments.seconds)
            found[each["rank"]].append(each)
        for process in ranks:
            process.join()
    rounds = list(zip(*found, strict=True))
    ratios = [max(a["run"], b["run"]) / max(a["read"], b["read"]) for a, b in rounds]
    same = all(a["log"] == b["log"] for a, b in rounds)
    facts = info.collect()
    print(f"Two ranks with Adaptive(8), {facts['cores']} cores, pyecho {facts['pyecho']}\n")
    print("| What | Median [lowest, highest] |")
    print("|---|---|")
    _print_row("run / reading the slower source", ratios, ".3f")
    _print_row("uses of an item", [a["factor"] for a, _ in rounds], ".2f")
    for name in ("batches", "collectives", "bytes"):
        _print_row(f"{name} of an epoch, one rank", [a[name] for a, _ in rounds], ".0f")
    print(f"\nThe logs of the ranks are {'equal' if same else 'DIFFERENT'}.")
    if arguments.json is not None:
        kept = [[{**each, "log": len(each["log"])} for each in pair] for pair in rounds]
        text = json.dumps({"facts": facts, "ratios": ratios, "rounds": kept}, indent=2)
        arguments.json.write_text(text + "\n")
    return int(median(ratios) > LIMIT or not same)


def _print_row(name: str, values: list[float], form: str) -> None:
    print(f"| {name} | {median(values):{form}} [{min(values):{form}}, {max(values):{form}}] |")


if __name__ == "__main__":
    sys.exit(main())
