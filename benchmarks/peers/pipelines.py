"""Libraries that load data in pipelines: the work as each does it; see `peers.copies`."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from peers.work import Source, Work

Uses = Iterator[Iterator[Any]]
AHEAD = 2


# ---------------------------------------------------------------- tf.data

# The paper's form calls a function for each example; a flat_map of chunks calls it for each chunk,
# as "vectorizing" in https://www.tensorflow.org/guide/data_performance recommends. From there, too:
# parallel `batch` and `prefetch` with AUTOTUNE. The shuffle buffer holds uses, not examples: it is
# given pool * e of them, by reference, so a use costs one copy, and a fresh example none.


def tf_examples(work: Work, source: Source) -> Uses:
    """Echo each example with a dataset of its own, as the paper does."""
    from tensorflow import data

    fresh = data.Dataset.from_tensor_slices(source.rows).repeat(source.passes)
    yield _tf_shuffled(work, fresh, data.Dataset.from_tensors)


def tf_chunks(work: Work, source: Source) -> Uses:
    """Echo a chunk of a batch's size with each dataset."""
    from tensorflow import data

    yield _tf_shuffled(work, _tf_chunks(work, source), data.Dataset.from_tensor_slices)


def tf_batches(work: Work, source: Source) -> Uses:
    """Echo batches."""
    from tensorflow import data

    chunks = _tf_chunks(work, source)
    echoed = chunks.flat_map(lambda x: data.Dataset.from_tensors(x).repeat(work.factor))
    yield _tf_prefetched(work, echoed)


def _tf_chunks(work: Work, source: Source) -> Any:
    from tensorflow import data

    chunks = source.rows.reshape(-1, work.batch, *work.shape)
    return data.Dataset.from_tensor_slices(chunks).repeat(source.passes)


def _tf_shuffled(work: Work, fresh: Any, each: Any) -> Any:
    from tensorflow import data

    echoed = fresh.flat_map(lambda x: each(x).repeat(work.factor))
    options = {"num_parallel_calls": data.AUTOTUNE, "deterministic": False}
    shuffled = echoed.shuffle(work.pool * work.factor, seed=1)
    return _tf_prefetched(work, shuffled.batch(work.batch, **options))


def _tf_prefetched(work: Work, batches: Any) -> Any:
    from tensorflow import data

    options = data.Options()
    options.deterministic = False
    options.threading.private_threadpool_size = work.threads
    return iter(batches.prefetch(data.AUTOTUNE).with_options(options))


# ---------------------------------------------------------------- Grain

# https://google-grain.readthedocs.io/en/latest/grain.dataset.html. `num_threads` is 0, which is
# recommended for data in memory; a thread prefetches batches. The flat map takes chunks rather than
# examples, which was the faster of the two. The window shuffle costs the most.


def grain_examples(work: Work, source: Source) -> Uses:
    """Echo examples."""
    from grain import experimental

    echoed = _grain_echoed(work, source, work.batch, list)
    window = {"window_size": work.pool * work.factor, "seed": 1}
    shuffled = experimental.WindowShuffleIterDataset(echoed, **window).batch(work.batch)
    ahead = experimental.ThreadPrefetchIterDataset(shuffled, prefetch_buffer_size=AHEAD)
    iterator = iter(ahead)
    yield iterator
    iterator.close()  # ends its thread


def grain_batches(work: Work, source: Source) -> Uses:
    """Echo batches by reference."""
    yield iter(_grain_echoed(work, source, 1, lambda batch: [batch]))


def _grain_echoed(work: Work, source: Source, most: int, items_of: Any) -> Any:
    import grain

    class Echo(grain.experimental.FlatMapTransform):
        max_fan_out = most * work.factor

        def flat_map(self, element: Any) -> Any:
            return items_of(element) * work.factor

    chunks = grain.MapDataset.source(source.views(work.batch)).repeat(source.passes)
    options = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    return grain.experimental.FlatMapIterDataset(chunks.to_iter_dataset(options), Echo())


# ---------------------------------------------------------------- torchdata.nodes

# https://docs.pytorch.org/data/0.11/what_is_torchdata_nodes.html


def nodes_batches(work: Work, source: Source) -> Uses:
    """Echo batches by reference."""
    from torchdata.nodes import IterableWrapper, Loader, Mapper, Unbatcher

    node: Any = IterableWrapper(source.chunks(work.batch))
    yield iter(Loader(Unbatcher(Mapper(node, lambda batch: [batch] * work.factor))))


# ---------------------------------------------------------------- torch.utils.data

# https://docs.pytorch.org/docs/stable/data.html: an IterableDataset, sharded with
# `get_worker_info()`, and automatic batching. The dataset yields tensors: collating NumPy arrays is
# slower. The workers are forked, so the source is shared with them, not sent.


def dataloader_examples(work: Work, source: Source) -> Uses:
    """Echo in a dataset, a worker process for each core; batches come through shared memory."""
    import torch
    from torch.utils.data import DataLoader, get_worker_info

    def uses() -> Iterator[Any]:
        # A block is read, shuffled, and emptied; each worker has its own, of its share of the pool.
        worker = get_worker_info()
        random = torch.Generator().manual_seed(worker.id)
        chunks = source.chunks(work.pool // worker.num_workers)
        for chunk in itertools.islice(chunks, worker.id, None, worker.num_workers):
            rows = torch.from_numpy(chunk).unbind()
            order = torch.randperm(len(rows) * work.factor, generator=random) % len(rows)
            for index in order.tolist():
                yield rows[index]

    loader = DataLoader(
        _torch_dataset(uses),
        batch_size=work.batch,
        num_workers=work.threads,
        prefetch_factor=AHEAD,
        multiprocessing_context="fork",
    )
    # Its workers end when the last reference to the iterator is dropped.
    yield iter(loader)


def dataloader_batches(work: Work, source: Source) -> Uses:
    """Echo batches: without automatic batching, and without a conversion."""
    import torch
    from torch.utils.data import DataLoader

    views = [torch.from_numpy(view) for view in source.views(work.batch)]

    def uses() -> Iterator[Any]:
        for batch in source.repeated(views):
            yield from itertools.repeat(batch, work.factor)

    yield iter(DataLoader(_torch_dataset(uses), batch_size=None, collate_fn=lambda batch: batch))


def monai_batches(work: Work, source: Source) -> Uses:
    """Echo batches by MONAI, the one peer whose documentation names data echoing.

    https://docs.monai.io/en/stable/data.html#threaddataloader: `repeats` yields each batch several
    times while a thread makes the next.
    """
    import torch
    from monai.data import ThreadDataLoader

    views = [torch.from_numpy(view) for view in source.views(work.batch)]
    options: Any = {"batch_size": None, "collate_fn": lambda batch: batch, "num_workers": 0}
    dataset = _torch_dataset(lambda: source.repeated(views))
    loader = ThreadDataLoader(dataset, buffer_size=AHEAD, repeats=work.factor, **options)
    uses = iter(loader)
    yield uses
    uses.close()  # ends its thread


def _torch_dataset(make: Any) -> Any:
    from torch.utils.data import IterableDataset

    class Made(IterableDataset):
        def __iter__(self) -> Iterator[Any]:
            return make()

    return Made()


# ---------------------------------------------------------------- SPDL

# https://facebookresearch.github.io/spdl/latest/: a stage costs microseconds for each item, so
# items are blocks and batches rather than examples. `concurrency` copies on all cores, and `take`
# releases the GIL meanwhile. `use_thread_output_queue` hands a batch over in 10 us, not 200.


def spdl_examples(work: Work, source: Source) -> Uses:
    """Echo examples: a block is copied and shuffled, then batches are taken out of it."""
    from spdl.pipeline import PipelineBuilder

    random = np.random.default_rng(1)

    def echoed(chunk: Any) -> Iterator[Any]:
        block = chunk.copy()
        order = random.permutation(len(block) * work.factor) % len(block)
        for start in range(0, len(order), work.batch):
            yield block, order[start : start + work.batch]

    builder = PipelineBuilder().add_source(source.chunks(work.pool)).pipe(echoed)
    copying: Any = {"concurrency": work.threads, "output_order": "input"}
    builder = builder.pipe(lambda job: job[0].take(job[1], axis=0), **copying).add_sink(AHEAD)
    with _spdl_running(builder, work.threads + 1) as items:
        yield items


@contextlib.contextmanager
def _spdl_running(builder: Any, threads: int) -> Iterator[Iterator[Any]]:
    pipeline = builder.build(num_threads=threads, use_thread_output_queue=True)
    with pipeline.auto_stop():
        yield iter(pipeline)
