"""SPDL: a pipeline of stages in threads, whose functions are NumPy's.

https://facebookresearch.github.io/spdl/latest/: a stage costs microseconds for each item, so items
are blocks and batches rather than examples. `concurrency` runs the copying stage on all cores, and
`take` releases the GIL meanwhile. `use_thread_output_queue` is documented to hand a batch over in
10 us instead of 200 to 400.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from spdl.pipeline import PipelineBuilder

from peers.workload import Source, Work

AHEAD = 2


@contextlib.contextmanager
def examples(work: Work, source: Source) -> Iterator[Iterator[Any]]:
    """Echo examples: a block is copied and shuffled, then batches are taken out of it."""
    random = np.random.default_rng(1)

    def echoed(chunk: Any) -> Iterator[tuple[Any, NDArray[np.int64]]]:
        block = chunk.copy()
        order = random.permutation(len(block) * work.factor) % len(block)
        for start in range(0, len(order), work.batch):
            yield block, order[start : start + work.batch]

    def taken(job: tuple[Any, NDArray[np.int64]]) -> Any:
        block, numbers = job
        return block.take(numbers, axis=0)

    builder = (
        PipelineBuilder()
        .add_source(source.chunks(work.pool))
        .pipe(echoed)
        .pipe(taken, concurrency=work.threads, output_order="input")
        .add_sink(AHEAD)
    )
    with _running(builder, work.threads + 1) as items:
        yield items


@contextlib.contextmanager
def batches(work: Work, source: Source) -> Iterator[Iterator[Any]]:
    """Echo batches by reference. Hands over all uses of a batch together.

    `disaggregate` would hand over each use separately, and be slower.
    """
    builder = (
        PipelineBuilder()
        .add_source(source.chunks(work.batch))
        .pipe(lambda batch: [batch] * work.factor)
        .add_sink(AHEAD)
    )
    with _running(builder, 1) as items:
        yield itertools.chain.from_iterable(items)


@contextlib.contextmanager
def _running(builder: Any, threads: int) -> Iterator[Iterator[Any]]:
    pipeline = builder.build(num_threads=threads, use_thread_output_queue=True)
    with pipeline.auto_stop():
        yield iter(pipeline)
