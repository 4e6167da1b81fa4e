"""The other ways to get batches to a device, as they are usually written."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, Sampler

from gpu.measuring import new_stream


class RowsDataset(Dataset[torch.Tensor]):
    """A whole batch for a list of indices, which is the fast way to use rows in memory."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array

    def __getitem__(self, indices: Any) -> torch.Tensor:
        """Gather rows."""
        return torch.from_numpy(self._array[indices])


class EndlessIndices(Sampler[Any]):
    """Random indices of one batch after the other."""

    def __init__(self, rows: int, batch: int) -> None:
        self._rows = rows
        self._batch = batch

    def __iter__(self) -> Iterator[Any]:
        """Draw."""
        random = np.random.default_rng(1)
        while True:
            yield random.integers(self._rows, size=self._batch)


def workers_for(wanted: int, batch_bytes: int, loaders: int) -> int:
    """Return how many workers have room for their batches in shared memory; 0 if none has.

    Each has 2 batches under way, and one more is at the consumer.
    """
    try:
        free = shutil.disk_usage("/dev/shm").free
    except OSError:
        return wanted
    return max(0, min(wanted, (int(free * 0.9) // (loaders * batch_bytes) - 1) // 3))


def data_loader(array: NDArray[Any], batch: int, workers: int) -> DataLoader[Any]:
    """Return a DataLoader of endless pinned batches with random rows, 2 ahead for each worker."""
    return DataLoader(
        RowsDataset(array),
        batch_size=None,
        sampler=EndlessIndices(len(array), batch),
        num_workers=workers,
        pin_memory=True,
        prefetch_factor=2,
        multiprocessing_context="fork",  # the rows are shared with the workers, not sent
    )


def copied(batches: Iterator[torch.Tensor], device: torch.device) -> Iterator[torch.Tensor]:
    """Copy each pinned batch when it is asked for, asynchronously, on the consumer's stream."""
    for batch in batches:
        yield batch.to(device, non_blocking=True)


def stream_prefetched(
    batches: Iterator[torch.Tensor], device: torch.device
) -> Iterator[torch.Tensor]:
    """Copy one batch ahead on a stream of its own, as timm's PrefetchLoader does."""
    stream = new_stream(device)
    ready: torch.Tensor | None = None
    for batch in batches:
        with torch.cuda.stream(stream):
            coming = batch.to(device, non_blocking=True)
        if ready is not None:
            yield ready
        current = torch.cuda.current_stream(device)
        current.wait_stream(stream)
        coming.record_stream(current)
        ready = coming
    if ready is not None:
        yield ready


def used_again(batches: Iterator[torch.Tensor], uses: int) -> Iterator[torch.Tensor]:
    """Hand out each batch so many times: echoing by hand, which copies it once."""
    for batch in batches:
        for _ in range(uses):
            yield batch


def has(name: str) -> bool:
    """Return True if a module is installed, such as "spdl" or "nvidia.dali"."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # of the package around it
        return False


def transferred_by_spdl(
    batches: Iterator[torch.Tensor], device: torch.device
) -> Iterator[torch.Tensor]:
    """Copy one batch ahead by SPDL, which does so in a thread and waits there for the copy."""
    from spdl.io import transfer_tensor_h2d

    os.environ["LOCAL_RANK"] = str(device.index)  # tells SPDL the device
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(transfer_tensor_h2d, next(batches))
        for batch in batches:
            ready, coming = coming, thread.submit(transfer_tensor_h2d, batch)
            yield ready.result()


def fed_by_dali(
    batches: Iterator[torch.Tensor], rows: int, device: torch.device
) -> Iterator[torch.Tensor]:
    """Feed pinned batches to a pipeline of DALI's, which copies two ahead.

    DALI reads them in place, so they must stay as they are.
    """
    from nvidia.dali import fn, pipeline_def
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    arrays = (batch.numpy() for batch in batches)

    @pipeline_def(batch_size=rows, num_threads=1, device_id=device.index, prefetch_queue_depth=2)
    def copies() -> Any:
        return fn.external_source(source=arrays, batch=True, no_copy=True).gpu()

    for [outputs] in DALIGenericIterator([copies()], ["batch"]):
        yield outputs["batch"]


def index_selected(pool: torch.Tensor, batch: int, device: torch.device) -> Iterator[torch.Tensor]:
    """Gather random rows of a pool that is on the device already; the indices are, too."""
    indices = [torch.randint(len(pool), (batch,), device=device) for _ in range(64)]
    while True:
        for index in indices:
            yield torch.index_select(pool, 0, index)
