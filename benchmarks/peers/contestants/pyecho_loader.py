"""pyecho, as its README says: `unbatch=True` for a source that yields batches."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import pyecho
from peers.workload import Source, Work


@contextlib.contextmanager
def examples(work: Work, source: Source) -> Iterator[Iterator[Any]]:
    """Echo examples of a source that yields batches."""
    with pyecho.EchoLoader(
        source.chunks(work.batch),
        work.factor,
        batch_size=work.batch,
        unbatch=True,
        shuffle_buffer=work.pool,
    ) as loader:
        yield iter(loader)


@contextlib.contextmanager
def examples_singly(work: Work, source: Source) -> Iterator[Iterator[Any]]:
    """Echo examples of a source that yields one after the other."""
    with pyecho.EchoLoader(
        itertools.chain.from_iterable(source.chunks(work.batch)),
        work.factor,
        batch_size=work.batch,
        shuffle_buffer=work.pool,
    ) as loader:
        yield iter(loader)


@contextlib.contextmanager
def batches(work: Work, source: Source) -> Iterator[Iterator[Any]]:
    """Echo batches by reference."""
    with pyecho.EchoLoader(source.chunks(work.batch), work.factor) as loader:
        yield iter(loader)
