"""An adaptive factor of two ranks whose sources have other speeds, which drift.

    python benchmarks/ranks.py [--rounds N] [--items N]

Needs torch. Each rank is a process with gloo; its source waits for each example as a slow one does,
the second 1.5 times as long as the first, both now faster, now slower. Shown is the time of an
epoch as a multiple of the time in which the slower source can be read alone, in turns, the number
of collectives and the bytes that a rank passes in them, and the uses of an example. The logs of the
ranks must be equal.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

BATCH_SIZE = 32
SECONDS = (0.0008, 0.0012)
"""Mean time of an example on each rank."""
STEP_SECONDS = 0.012
"""Time of the consumer for a batch: three times as fast as the slower source."""


class Drifting:
    """A source that needs between half and one and a half of its mean time."""

    def __init__(self, items: int, seconds: float, phase: float) -> None:
        self.items, self.seconds, self.phase = items, seconds, phase

    def __len__(self) -> int:
        return self.items

    def __iter__(self) -> Iterator[Any]:
        due = time.perf_counter()
        for item in range(self.items):
            turn = 2 * math.pi * (2 * item / self.items + self.phase)
            due += self.seconds * (1 + 0.5 * math.sin(turn))
            time.sleep(max(0.0, due - time.perf_counter()))
            due = max(due, time.perf_counter() - 0.01)  # what a late reader can make up
            yield np.full(16, item, np.float32)


def run_rank(items: int, rounds: int) -> None:
    """Be a rank: print each round's times, collectives, bytes and uses as JSON."""
    import torch.distributed as dist

    from pyecho import Adaptive
    from pyecho.torch import EchoLoader
    from pyecho.torch.distributed import TorchGroup

    class Counting(TorchGroup):
        calls = numbers = 0

        def gather(self, values: list[int]) -> list[list[int]]:
            self.calls += 1
            self.numbers += len(values)
            return super().gather(values)

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    source = Drifting(items, SECONDS[rank], rank / 4)
    group = Counting(dist.group.WORLD)
    for _ in range(rounds):
        dist.barrier()
        began = time.perf_counter()
        for _ in source:
            pass
        alone = time.perf_counter() - began
        with EchoLoader(source, Adaptive(8), batch_size=BATCH_SIZE, group=group) as loader:
            group.calls = group.numbers = 0
            dist.barrier()
            began = time.perf_counter()
            for _ in loader:
                time.sleep(STEP_SECONDS)
            seconds = time.perf_counter() - began
            stats = loader.stats()
        found: list[Any] = [None] * dist.get_world_size()
        log = [decisions.tolist() for decisions in stats.log.values()]
        dist.all_gather_object(found, (alone, seconds, log))
        assert found[0][2] == found[1][2], "the logs differ"
        print(
            json.dumps(
                [
                    max(each[1] for each in found) / max(each[0] for each in found),
                    stats.batches,
                    group.calls,
                    8 * group.numbers,
                    stats.emitted / items,
                ]
            ),
            flush=True,
        )
    dist.destroy_process_group()


def main() -> None:
    """Start both ranks, and show what they measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--items", type=int, default=6000, help="of each source")
    arguments = parser.parse_args()
    if "RANK" in os.environ:
        run_rank(arguments.items, arguments.rounds)
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    world = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            [sys.executable, *sys.argv],
            env=os.environ | world | {"RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
            text=True,
        )
        for rank in range(2)
    ]
    rows = []
    for line in ranks[0].stdout or ():
        rows.append(json.loads(line))
        print(f"round {len(rows)} of {arguments.rounds}", file=sys.stderr)
    if any(rank.wait() for rank in ranks):
        sys.exit("a rank has failed")
    ratios, batches, calls, sent, uses = zip(*rows, strict=True)
    low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    print(f"time / reading time of the slower source: {middle:.3f} [{low:.3f}, {high:.3f}]")
    print(
        f"of {statistics.median(batches):.0f} batches: {statistics.median(calls):.0f} collectives, "
        f"{statistics.median(sent):.0f} bytes of each rank, {statistics.median(uses):.2f} uses of "
        "an example"
    )


if __name__ == "__main__":
    main()
