"""Compares workers with a `DataLoader` whose workers feed the same echo.

    python benchmarks/workers.py [--bytes 153600] [--items 6000] [--factor 1] [--rounds 9]

A dataset of tensors in memory, so that what costs is the way from the workers to a batch. Prints
the microseconds of an example, and how often a DataLoader's time is that of workers; the two take
turns, medians with [lowest, highest].
"""

import argparse
import statistics
import time
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

import pyecho.torch

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


def loader_of(way: str, rows: Rows, factor: int) -> pyecho.torch.EchoLoader:
    """Return a loader whose examples come this way."""
    options: dict[str, Any] = {"batch_size": 64}
    if way == "DataLoader":
        source = DataLoader(rows, batch_size=64, num_workers=2)
        return pyecho.torch.EchoLoader(source, factor, unbatch=True, **options)
    if way != "none":
        options |= {"num_workers": 2, "workers": way}
    return pyecho.torch.EchoLoader(rows, factor, **options)


def seconds_of(loader: pyecho.torch.EchoLoader) -> float:
    """Return the seconds of a use, the first batch left out."""
    with loader:
        batches = iter(loader)
        next(batches)
        began, uses = time.perf_counter(), 0
        for batch in batches:
            uses += len(batch)
        return (time.perf_counter() - began) / uses


def spread(values: list[float], form: str) -> str:
    """Return the median, and the lowest and highest."""
    shown = (format(value, form) for value in (min(values), max(values)))
    return f"{statistics.median(values):{form}} [{', '.join(shown)}]"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("bytes", 153600), ("items", 6000), ("factor", 1), ("rounds", 9)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = Rows(given.items, given.bytes)
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(given.rounds):
        for way in WAYS:
            times[way].append(seconds_of(loader_of(way, rows, given.factor)) * 1e6)
    for way in WAYS:
        ratios = [one / other for one, other in zip(times["DataLoader"], times[way], strict=True)]
        print(
            f"{way:10}  {spread(times[way], '.0f')} us  DataLoader / {way}: {spread(ratios, '.2f')}"
        )
