"""torch.utils.data.DataLoader, with the echo and the shuffling in the dataset.

https://docs.pytorch.org/docs/stable/data.html: an IterableDataset, sharded with
`get_worker_info()`, automatic batching, and workers that persist. The dataset yields tensors:
collating NumPy arrays is slower.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from peers.workload import Source, Work


class EchoedExamples(IterableDataset[torch.Tensor]):
    """A block is read, shuffled, and emptied; each worker has its own, of its share of the pool."""

    def __init__(self, work: Work, source: Source) -> None:
        self._work = work
        self._source = source

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Yield the uses of this worker's blocks."""
        worker = get_worker_info()
        number, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        factor = self._work.factor
        random = torch.Generator().manual_seed(number)
        chunks = self._source.chunks(self._work.pool // workers)
        for chunk in itertools.islice(chunks, number, None, workers):
            rows = torch.from_numpy(chunk).unbind()
            order = torch.randperm(len(rows) * factor, generator=random) % len(rows)
            for index in order.tolist():
                yield rows[index]


class EchoedBatches(IterableDataset[Any]):
    """Each batch several times."""

    def __init__(self, work: Work, source: Source) -> None:
        self._work = work
        self._source = source

    def __iter__(self) -> Iterator[Any]:
        """Yield uses."""
        views = [torch.from_numpy(view) for view in self._source.views(self._work.batch)]
        for batch in self._source.repeated(views):
            for _ in range(self._work.factor):
                yield batch


@contextlib.contextmanager
def examples(work: Work, source: Source) -> Iterator[Iterator[Any]]:
    """Everything in the consumer's process."""
    torch.set_num_threads(work.threads)
    yield iter(DataLoader(EchoedExamples(work, source), batch_size=work.batch))


@contextlib.contextmanager
def examples_with_workers(work: Work, source: Source) -> Iterator[Iterator[Any]]:
    """As many worker processes as cores; batches come through shared memory."""
    loader = DataLoader(
        EchoedExamples(work, source),
        batch_size=work.batch,
        num_workers=work.threads,
        prefetch_factor=2,
        multiprocessing_context="fork",  # the source is shared with the workers, not sent
    )
    # Its workers end when the last reference to the iterator is dropped.
    yield iter(loader)


@contextlib.contextmanager
def batches(work: Work, source: Source) -> Iterator[Iterator[Any]]:
    """Batches as they are: without automatic batching, and without a conversion."""
    yield iter(DataLoader(EchoedBatches(work, source), batch_size=None, collate_fn=_itself))


def _itself(batch: Any) -> Any:
    return batch
