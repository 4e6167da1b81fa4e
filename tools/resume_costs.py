"""Print the seconds of a resume after a million items, for each kind of source that is installed.

    python tools/resume_costs.py [items]

The time is from `load_state_dict` to the first batch, without the import of the library. Items are
trivial, so a source that reads again takes what its own iteration costs.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import pyecho.torch

ITEMS = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
ROWS = 1000


class Stream(IterableDataset[int]):
    """Yields numbers."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(LENGTH))


LENGTH = 2 * ITEMS


def has(name: str) -> bool:
    """Return True if a library is installed."""
    return importlib.util.find_spec(name) is not None


def sources(folder: Path) -> Iterator[tuple[str, Callable[[], Any], bool]]:
    """Yield a name, what makes the source, and whether its items are batches."""
    array = np.arange(LENGTH)
    dataset = TensorDataset(torch.from_numpy(array))
    yield "NumPy array", lambda: array, False
    yield "DataLoader", lambda: DataLoader(dataset, ROWS, shuffle=True), True
    yield "DataLoader, 2 workers", lambda: DataLoader(dataset, ROWS, num_workers=2), True
    yield "DataLoader over an IterableDataset", lambda: DataLoader(Stream(), ROWS), True
    yield "any iterable", Stream, False
    if has("torchdata"):
        from torchdata import nodes
        from torchdata.stateful_dataloader import StatefulDataLoader

        def node() -> Any:
            return nodes.Loader(nodes.IterableWrapper(range(LENGTH)))

        yield "StatefulDataLoader", lambda: StatefulDataLoader(dataset, ROWS), True
        yield "torchdata.nodes.Loader", node, False
    if has("h5py"):
        import h5py

        with h5py.File(folder / "rows.h5", "w") as file:
            file["rows"] = array
        yield "h5py", lambda: h5py.File(folder / "rows.h5")["rows"], False
    if has("pyarrow"):
        import pyarrow as pa
        import pyarrow.dataset
        import pyarrow.parquet

        table = pa.table({"row": array})
        pa.parquet.write_table(table, folder / "rows.parquet", row_group_size=65_536)
        yield "PyArrow Table", lambda: table, False
        yield "PyArrow Dataset (Parquet)", lambda: pa.dataset.dataset(folder), False
    if has("polars"):
        import polars as pl

        yield "Polars DataFrame", lambda: pl.DataFrame({"row": array}), False


def seconds(make: Callable[[], Any], *, unbatch: bool) -> float:
    """Return what a resume takes, after half of the items."""

    def loader() -> pyecho.torch.EchoLoader:
        return pyecho.torch.EchoLoader(make(), 1, batch_size=ROWS, unbatch=unbatch)

    with loader() as first:
        batches = iter(first)
        for _ in range(ITEMS // ROWS):
            next(batches)
        state = first.state_dict()
    with loader() as second:
        began = time.perf_counter()
        second.load_state_dict(state)
        next(iter(second))
        return time.perf_counter() - began


def main() -> None:
    """Print a line for each source."""
    with tempfile.TemporaryDirectory() as folder:
        for name, make, unbatch in sources(Path(folder)):
            print(f"{name:40} {seconds(make, unbatch=unbatch):8.3f} s", flush=True)


if __name__ == "__main__":
    main()
