"""Compares workers with a `DataLoader` whose workers feed the same echo.

A dataset of tensors in memory, e = 1, so that what costs is the way from the workers to a batch.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import torch
from common import finish, new_parser, new_report
from torch.utils.data import DataLoader, Dataset

import pyecho.torch
from pyecho.bench.row import Row
from pyecho.bench.sampling import interleaved

WAYS = ("DataLoader", "process", "thread", "none")


class Rows(Dataset[torch.Tensor]):
    """Rows of some bytes each."""

    def __init__(self, items: int, size_bytes: int) -> None:
        self.rows = torch.zeros(64, size_bytes, dtype=torch.uint8) + 1
        self.items = items

    def __len__(self) -> int:
        """Return the number of items."""
        return self.items

    def __getitem__(self, index: int) -> torch.Tensor:
        """Return a row."""
        return self.rows[index % 64]


def loader_of(way: str, rows: Rows) -> pyecho.torch.EchoLoader:
    """Return a loader whose examples come this way."""
    options: dict[str, Any] = {"batch_size": 64}
    if way == "DataLoader":
        source = DataLoader(rows, batch_size=64, num_workers=2)
        return pyecho.torch.EchoLoader(source, 1, unbatch=True, **options)
    if way != "none":
        options |= {"num_workers": 2, "workers": way}
    return pyecho.torch.EchoLoader(rows, 1, **options)


def us_of(way: str, rows: Rows) -> float:
    """Return the microseconds of a use, the first batch left out."""
    with loader_of(way, rows) as loader:
        batches = iter(loader)
        next(batches)
        began, uses = time.perf_counter(), 0
        for batch in batches:
            uses += len(batch)
        return 1e6 * (time.perf_counter() - began) / uses


if __name__ == "__main__":
    options = new_parser(__doc__, rounds=9, items=6000).parse_args()
    items = 256 if options.quick else options.items
    report = new_report("workers", "Two workers", options, items=items)
    report.ratio_name = "Times as fast as the DataLoader"
    torch.set_num_threads(1)
    for size_bytes in (3072, 150_528):
        rows = Rows(items, size_bytes)
        contestants = {way: partial(us_of, way, rows) for way in WAYS}
        us = interleaved(f"rows of {size_bytes:,} B", options.rounds, contestants)
        theirs = us["DataLoader"]
        report.add(
            f"Rows of {size_bytes:,} B",
            [Row(way, us[way], "us", theirs, "DataLoader", theirs / us[way]) for way in WAYS],
        )
    finish(report, options)
