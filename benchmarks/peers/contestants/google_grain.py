"""Grain, with its streaming dataset: a flat map, a window shuffle, batches.

https://google-grain.readthedocs.io/en/latest/grain.dataset.html. `ReadOptions.num_threads` is 0,
which its documentation recommends for data in memory; a thread prefetches batches. The flat map
takes chunks rather than examples, which was the faster of the two. The window shuffle computes each
place with a function of its own, and costs the most.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import grain

from peers.workload import Source, Work

AHEAD = 2


class EchoEach(grain.experimental.FlatMapTransform):
    """All uses of a chunk's examples, by reference."""

    def __init__(self, work: Work) -> None:
        self._factor = work.factor
        self.max_fan_out = work.batch * work.factor

    def flat_map(self, element: Any) -> Sequence[Any]:
        """Return the uses."""
        return list(element) * self._factor


class EchoWhole(grain.experimental.FlatMapTransform):
    """All uses of a batch, by reference."""

    def __init__(self, work: Work) -> None:
        self.max_fan_out = work.factor

    def flat_map(self, element: Any) -> Sequence[Any]:
        """Return the uses."""
        return [element] * self.max_fan_out


@contextlib.contextmanager
def examples(work: Work, source: Source) -> Iterator[Iterator[Any]]:
    """Echo examples."""
    echoed = grain.experimental.FlatMapIterDataset(_chunks(work, source), EchoEach(work))
    shuffled = grain.experimental.WindowShuffleIterDataset(
        echoed, window_size=work.pool * work.factor, seed=1
    )
    prefetched = grain.experimental.ThreadPrefetchIterDataset(
        shuffled.batch(work.batch), prefetch_buffer_size=AHEAD
    )
    iterator = iter(prefetched)
    yield iterator
    iterator.close()  # ends its thread


@contextlib.contextmanager
def batches(work: Work, source: Source) -> Iterator[Iterator[Any]]:
    """Echo batches by reference."""
    yield iter(grain.experimental.FlatMapIterDataset(_chunks(work, source), EchoWhole(work)))


def _chunks(work: Work, source: Source) -> grain.IterDataset:
    return (
        grain.MapDataset.source(source.views(work.batch))
        .repeat(source.passes)
        .to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))
    )
