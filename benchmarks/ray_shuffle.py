"""Shuffled batches of Ray Data: pyecho against the `local_shuffle_buffer_size` of Ray.

    python benchmarks/ray_shuffle.py [--rounds N]

Needs ray[data] and torch. Both read the same dataset, which lies in the object store, shuffle
among as many rows, and make tensors of 64 rows each; pyecho with a factor of 1, so that it does the
same work, and with 2. Bare memcpy, in one thread, copies each row into a pool and out of it. They
take turns; shown are medians and quartiles over the rounds. Then the memory that each allocates for
a row while it reads: all of Arrow's, and the most of Python's and NumPy's at a time.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import ray.data

from pyecho import _core
from pyecho.integrations.ray import ray_tables
from pyecho.torch import EchoLoader

BATCH_SIZE = 64
BUFFER = 640
CASES = {(32, 32, 3): 20_000, (224, 224, 3): 6_000}


def dataset_of(shape: tuple[int, ...], rows: int) -> Any:
    """Return images and labels that lie in the object store."""

    def images(batch: dict[str, Any]) -> dict[str, Any]:
        label = batch["id"]
        image = np.empty((len(label), *shape), np.uint8)
        image[:] = label.astype(np.uint8).reshape(-1, *[1] * len(shape))
        return {"image": image, "label": label}

    return ray.data.range(rows, override_num_blocks=8).map_batches(images).materialize()


def rows_per_second(batches: Iterable[Any]) -> float:
    """Iterate once."""
    rows, began = 0, time.perf_counter()
    for batch in batches:
        rows += len(batch["label"])
        del batch
    return rows / (time.perf_counter() - began)


def allocated(read: Callable[[], Iterable[Any]], rows: int) -> tuple[float, float]:
    """Return bytes for each row: those allocated by Arrow, and the most of Python at a time."""
    pool = pa.default_memory_pool()
    before = pool.total_bytes_allocated()
    tracemalloc.start()
    for part in read():
        del part
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return (pool.total_bytes_allocated() - before) / rows, most / rows


def show(values: list[float], digits: int = 0) -> str:
    """Return the median, and the quartiles in brackets."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:,.{digits}f} [{low:,.{digits}f}, {high:,.{digits}f}]"


def main() -> None:
    """Run both cases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    ray.init(include_dashboard=False, object_store_memory=1500 << 20, log_to_driver=False)
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    for shape, rows in CASES.items():
        dataset = dataset_of(shape, rows)

        def shuffled(dataset: Any = dataset) -> Iterable[Any]:
            return dataset.iter_torch_batches(
                batch_size=BATCH_SIZE, local_shuffle_buffer_size=BUFFER
            )

        loaders = [
            EchoLoader(dataset, factor, batch_size=BATCH_SIZE, shuffle_buffer=BUFFER)
            for factor in (1, 2)
        ]
        bare = _core.GatherRace(
            row_bytes=int(np.prod(shape)),
            batch_size=BATCH_SIZE,
            capacity=BUFFER,
            factor=1,
            fresh=rows,
            threads=0,
        )
        times: list[list[float]] = []
        for _ in range(rounds + 1):
            found = [rows_per_second(each) for each in (shuffled(), *loaders)]
            times.append([*found, rows / bare.memcpy_seconds(1)])
        theirs, *others = map(list, zip(*times[1:], strict=True))  # the first one warms up
        print(f"{np.prod(shape):,} B a row, {rows:,} rows; rows per second")
        print(f"  Ray, local shuffle: {show(theirs)}")
        for name, found in zip(("pyecho, factor 1", "factor 2", "memcpy"), others, strict=True):
            pairs = zip(found, theirs, strict=True)
            print(f"  {name}: {show(found)}; {show([a / b for a, b in pairs], 1)} times Ray")
        for name, read in (
            ("Ray", shuffled),
            ("pyecho's reading", lambda d=dataset: ray_tables(d)),
        ):
            arrow, python = allocated(read, rows)
            print(
                f"  {name}: {arrow:,.0f} B a row of Arrow's, {python:,.0f} B of Python's",
                flush=True,
            )


if __name__ == "__main__":
    main()
