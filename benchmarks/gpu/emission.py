"""Examples a second that arrive on the device."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import pyecho.torch
from gpu import setup
from gpu.setup import Rows, Scale, seconds_of_batches
from pyecho._core import available_cores
from pyecho.bench.report import Report
from pyecho.bench.row import Row
from pyecho.bench.sampling import interleaved

FACTORS = {"host": (1, 2, 4, 8), "device": (1, 2, 4, 8, 64)}
"""With the last one link and host have next to nothing to do."""
GATHER = "index_select alone"
PLAIN, STREAMED = "DataLoader, non_blocking", "DataLoader, stream prefetching"


class RandomBatches(IterableDataset[torch.Tensor]):
    """Whole batches of random rows, which is the fast way to use rows in memory."""

    def __init__(self, array: NDArray[Any], batch: int) -> None:
        self._array, self._batch = array, batch

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Gather rows, other ones in each worker."""
        random = np.random.default_rng(get_worker_info().id)
        while True:
            chosen = random.integers(len(self._array), size=self._batch)
            yield torch.from_numpy(self._array[chosen])

    def loader(self, workers: int) -> Iterator[torch.Tensor]:
        """Return pinned batches from a DataLoader, 2 ahead for each worker."""
        return iter(
            DataLoader(
                self,
                batch_size=None,
                num_workers=workers,
                pin_memory=True,
                prefetch_factor=2,
                multiprocessing_context="fork",  # the rows are shared with the workers, not sent
            )
        )


def workers_for(wanted: int, batch_bytes: int) -> int:
    """Return how many workers of two DataLoaders have room in shared memory; 0 if none has."""
    free = shutil.disk_usage("/dev/shm").free
    return max(0, min(wanted, (int(free * 0.9) // (2 * batch_bytes) - 1) // 3))


def selected(words: torch.Tensor, batch: int) -> Iterator[torch.Tensor]:
    """Gather random rows of a pool that is on the device already; the indices are, too."""
    indices = [torch.randint(len(words), (batch,), device=words.device) for _ in range(64)]
    while True:
        for index in indices:
            yield torch.index_select(words, 0, index)


def measure(device: torch.device, report: Report, scale: Scale) -> None:
    """Examples a second, for both sizes of rows."""
    for rows in (scale.large, scale.small):
        _measure_rows(device, report, rows, scale)


def _measure_rows(device: torch.device, report: Report, rows: Rows, scale: Scale) -> None:
    array = setup.random_rows(rows, scale.source_bytes)
    # As many as pyecho's own threads.
    workers = workers_for(max(1, min(4, available_cores() - 1)), rows.batch_bytes)
    # As 8-byte words, because the device gathers them faster than bytes: a better limit.
    words = torch.from_numpy(array[: rows.pool].view("int64")).to(device)
    names = {
        f"pyecho, echoed on the {place}, e = {factor}": (place, factor)
        for place, factors in FACTORS.items()
        for factor in factors
    }
    with contextlib.ExitStack() as stack:
        iterators: dict[str, Iterator[torch.Tensor]] = {GATHER: selected(words, rows.batch)}
        if workers:  # forked before pyecho has threads
            batches = RandomBatches(array, rows.batch)
            plain, streamed = batches.loader(workers), batches.loader(workers)
            iterators[PLAIN] = setup.copied(plain, device)
            iterators[STREAMED] = setup.prefetched(streamed, device)
            del plain, streamed
        for name, (place, factor) in names.items():
            loader = pyecho.torch.EchoLoader(
                setup.endless_batches(array, rows.batch),
                factor,
                batch_size=rows.batch,
                unbatch=True,
                shuffle_buffer=rows.pool,
                device=pyecho.torch.Device(device, echo=place == "device"),
            )
            iterators[name] = iter(stack.enter_context(loader))

        def rate(name: str) -> Callable[[], float]:
            # Batches that never leave the device are very fast, so more of them are timed.
            count = rows.batches * (10 if name == GATHER else 1)
            return lambda: (
                count * rows.batch / seconds_of_batches(device, iterators[name], count) * 1e-3
            )

        rounds = max(1, scale.rounds - 2)
        rates = interleaved(
            f"emission, {rows.name}", rounds, {name: rate(name) for name in iterators}
        )
        iterators.clear()  # ends the DataLoaders' workers
    section = f"Emission, {rows.name}, batches of {rows.batch}"
    gather = rates.pop(GATHER)
    if workers:
        best = rates[PLAIN].combined(max, rates[STREAMED])
        better = "the better DataLoader"
        report.add(section, [Row(name, rates[name], "k/s", best, better) for name in names])
    for name, found in rates.items():
        target = ">= 0.8" if name.endswith("= 64") else ""
        report.add(section, [Row(name, found, "k/s", gather, GATHER, target=target)])
    report.note(f"emission, {rows.name}: DataLoaders have {workers} workers (0: no room for them)")
