"""tf.data, where data echoing was first done.

The paper's form, `flat_map(lambda x: Dataset.from_tensors(x).repeat(e))`, calls a function for each
example; a `flat_map` of chunks calls it for each chunk, as "vectorizing" in
https://www.tensorflow.org/guide/data_performance recommends. From there, too: parallel `batch` and
`prefetch` with AUTOTUNE; from https://www.tensorflow.org/api_docs/python/tf/data/Options: no
determinism, so that parallel parts hand over results as soon as they are ready.

The shuffle buffer holds uses, not examples: it is given pool * e of them, which hold about as many
distinct examples as the other contestants' pools. It holds references, so a use costs one copy, and
a fresh example none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from peers.workload import Source, Work


@contextlib.contextmanager
def examples(work: Work, source: Source) -> Iterator[Iterator[Any]]:
    """Echo each example with a dataset of its own, as the paper does."""
    fresh = tf.data.Dataset.from_tensor_slices(source.rows).repeat(source.passes)
    echoed = fresh.flat_map(lambda x: tf.data.Dataset.from_tensors(x).repeat(work.factor))
    yield iter(_shuffled_batches(work, echoed))


@contextlib.contextmanager
def examples_by_chunk(work: Work, source: Source) -> Iterator[Iterator[Any]]:
    """Echo a chunk of a batch's size with each dataset."""
    chunks = source.rows.reshape(-1, work.batch, *work.shape)
    fresh = tf.data.Dataset.from_tensor_slices(chunks).repeat(source.passes)
    echoed = fresh.flat_map(lambda x: tf.data.Dataset.from_tensor_slices(x).repeat(work.factor))
    yield iter(_shuffled_batches(work, echoed))


@contextlib.contextmanager
def batches(work: Work, source: Source) -> Iterator[Iterator[Any]]:
    """Echo batches."""
    chunks = source.rows.reshape(-1, work.batch, *work.shape)
    fresh = tf.data.Dataset.from_tensor_slices(chunks).repeat(source.passes)
    echoed = fresh.flat_map(lambda x: tf.data.Dataset.from_tensors(x).repeat(work.factor))
    yield iter(echoed.prefetch(tf.data.AUTOTUNE).with_options(_options(work)))


def _shuffled_batches(work: Work, echoed: tf.data.Dataset) -> tf.data.Dataset:
    return (
        echoed.shuffle(work.pool * work.factor, seed=1)
        .batch(work.batch, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)
        .prefetch(tf.data.AUTOTUNE)
        .with_options(_options(work))
    )


def _options(work: Work) -> tf.data.Options:
    options = tf.data.Options()
    options.deterministic = False
    options.threading.private_threadpool_size = work.threads
    return options
