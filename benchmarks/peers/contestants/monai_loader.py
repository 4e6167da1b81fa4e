"""MONAI's ThreadDataLoader, the one peer whose documentation names data echoing.

https://docs.monai.io/en/stable/data.html#threaddataloader: `repeats` yields each batch several
times while a thread makes the next.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from monai.data import ThreadDataLoader
from torch.utils.data import IterableDataset

from peers.workload import Source, Work


class Batches(IterableDataset[Any]):
    """Batches in memory."""

    def __init__(self, work: Work, source: Source) -> None:
        self._source = source
        self._views = [torch.from_numpy(view) for view in source.views(work.batch)]

    def __iter__(self) -> Iterator[Any]:
        """Yield them in order."""
        return self._source.repeated(self._views)


@contextlib.contextmanager
def batches(work: Work, source: Source) -> Iterator[Iterator[Any]]:
    """Echo batches by reference."""
    loader = ThreadDataLoader(
        Batches(work, source),
        buffer_size=2,
        repeats=work.factor,
        batch_size=None,
        collate_fn=_itself,
        num_workers=0,
    )
    uses = iter(loader)
    yield uses
    uses.close()  # ends its thread


def _itself(batch: Any) -> Any:
    return batch
