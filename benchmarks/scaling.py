"""Models how example echoing scales with cores, from parts that are measured on this machine.

A use is planned by one thread at a time, and copied by any. So n threads make a use in
max(plan, (plan + copy) / n), if memory keeps up: its bandwidth is no part of the model. `plan` is
the processor time of a use of one byte in one thread, and `copy` what a row adds to that. Prints
the uses of a microsecond by threads, and beside each the part of n times one thread's.
"""

from __future__ import annotations

import time

import numpy as np
from common import finish, new_parser, new_report, sample

from pyecho import EchoLoader
from pyecho.bench.row import Row

ROWS = {1: 200_000, 256: 100_000, 3072: 30_000, 150_528: 1_000}
THREADS = (1, 2, 4, 8, 16, 32, 64)
FACTOR = 16


def use_ns(row_bytes: int, items: int) -> float:
    """Return the processor time of a use, of which a part is a fresh item's."""
    rows = np.zeros((items, row_bytes), np.uint8)
    loader = EchoLoader(
        rows, FACTOR, batch_size=256, shuffle_buffer=min(4096, items // 4), threads=0
    )
    batches = iter(loader)
    next(batches)
    began, count = time.process_time_ns(), sum(1 for _ in batches)
    spent = time.process_time_ns() - began
    loader.close()
    return spent / (count * 256)


def main() -> None:
    """Measure the parts, and print the model."""
    parser = new_parser(__doc__, rounds=5)
    options = parser.parse_args()
    report = new_report("scaling", "A model of many cores", options, threads=THREADS)
    shrink = 20 if options.quick else 1
    found = {
        size: sample(use_ns(size, items // shrink) for _ in range(options.rounds))
        for size, items in ROWS.items()
    }
    plan = found[1].median
    report.add(
        "measured: processor time of a use",
        [Row(f"rows of {size} B", each, "ns") for size, each in found.items()],
    )
    for size in list(ROWS)[1:]:
        copy = max(0.0, found[size].median - plan)
        rows = []
        for threads in THREADS:
            rate = 1e3 / max(plan, (plan + copy) / threads)
            best = sample([threads * 1e3 / (plan + copy)])
            rows.append(Row(f"{threads} threads", sample([rate]), "uses/us", best, "n times one"))
        report.add(f"model: rows of {size} B", rows)
    finish(report, options)


if __name__ == "__main__":
    main()
