"""Shuffled batches of Ray Data: pyecho against the `local_shuffle_buffer_size` of Ray.

Needs ray[data,train] and torch. Both read one dataset, which lies in the object store, shuffle
among as many rows, and make tensors of 64 rows each; pyecho with a factor of 1, so that it does the
same work, and with 2. Bare memcpy, in one thread, copies each row into a pool and out of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import ray.data
from common import finish, new_parser, new_report

from pyecho.bench import _races
from pyecho.bench.row import Row
from pyecho.bench.sampling import interleaved, seconds_to_drain
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


def shuffled(dataset: Any) -> Iterable[Any]:
    """Return Ray's batches."""
    batches: Iterable[Any] = dataset.iter_torch_batches(
        batch_size=BATCH_SIZE, local_shuffle_buffer_size=BUFFER
    )
    return batches


def compared(dataset: Any, row_bytes: int, rounds: int) -> list[Row]:
    """Let all of them read the dataset."""
    rows = dataset.count()
    bare = _races.GatherRace(
        row_bytes=row_bytes,
        batch_size=BATCH_SIZE,
        shuffle_buffer=BUFFER,
        factor=1,
        fresh=rows,
        threads=0,
    )

    def rate(factor: int) -> Callable[[], float]:
        loader = EchoLoader(dataset, factor, batch_size=BATCH_SIZE, shuffle_buffer=BUFFER)
        return lambda: factor * rows / seconds_to_drain(loader)

    contestants = {
        "Ray": lambda: rows / seconds_to_drain(shuffled(dataset)),
        "pyecho, factor 1": rate(1),
        "pyecho, factor 2": rate(2),
        "memcpy": lambda: rows / bare.memcpy_seconds(1),
    }
    rates = interleaved(f"{row_bytes:,} B", rounds, contestants)
    theirs = rates.pop("Ray")
    return [Row(name, ours, "rows/s", theirs, "Ray") for name, ours in rates.items()]


if __name__ == "__main__":
    options = new_parser(__doc__, rounds=7).parse_args()
    report = new_report("ray", "Shuffled batches of Ray Data", options)
    ray.init(include_dashboard=False, object_store_memory=1500 << 20, log_to_driver=False)
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    for shape, most in CASES.items():
        rows, row_bytes = most // 10 if options.quick else most, int(np.prod(shape))
        section = f"{row_bytes:,} B a row, {rows:,} rows"
        report.add(section, compared(dataset_of(shape, rows), row_bytes, options.rounds))
    finish(report, options)
