"""`to_tf_dataset`: specs, nests, epochs and early ends. Needs requirements/tensorflow.txt."""

import os
import threading
from dataclasses import dataclass
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import ml_dtypes

import pyecho
from pyecho.integrations.tf import to_tf_dataset

ROWS = np.arange(50, dtype=np.float32).repeat(6).reshape(50, 2, 3)
LABELS = np.arange(50)


class Pair(NamedTuple):
    x: object
    y: object


@dataclass
class Record:
    x: object
    y: object


def loader(source=(ROWS, LABELS), factor=2, batch_size=16, **options):
    return pyecho.EchoLoader(source, factor, batch_size=batch_size, **options)


def test_spec_leaves_the_rows_open_where_a_batch_may_be_short():
    assert to_tf_dataset(loader()).element_spec == (
        tf.TensorSpec((None, 2, 3), tf.float32),
        tf.TensorSpec((None,), tf.int64),
    )
    assert to_tf_dataset(loader(drop_last=True)).element_spec[0].shape == (16, 2, 3)


def test_iteration_of_a_dataset_is_an_epoch_of_the_loader():
    plain, dataset = loader(), to_tf_dataset(loader())
    for _ in range(3):
        expected = [[leaf.copy() for leaf in batch] for batch in plain]
        for batch, found in zip(expected, dataset.as_numpy_iterator(), strict=True):
            for one, other in zip(batch, found, strict=True):
                np.testing.assert_array_equal(one, other)
                assert one.dtype == other.dtype


def test_cardinality_is_the_length():
    assert to_tf_dataset(loader()).cardinality() == len(loader()) == 7
    unknown = to_tf_dataset(loader(iter(ROWS)))
    assert unknown.cardinality() == tf.data.UNKNOWN_CARDINALITY
    assert sum(1 for _ in unknown) == 7


def test_source_is_read_once_for_its_spec_and_each_pass():
    reads = []

    class Source:
        def __iter__(self):
            reads.append(1)
            return iter(ROWS)

    dataset = to_tf_dataset(loader(Source())).repeat(2)
    assert sum(1 for _ in dataset) == 14
    assert len(reads) == 2


def test_transformations_of_tf_data_work_on_it():
    dataset = to_tf_dataset(loader()).map(lambda x, y: y).unbatch().prefetch(2)
    assert np.bincount([int(y) for y in dataset]).tolist() == [2] * 50


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda x, y: {"x": x, "more": {"y": y}}, dict),
        (lambda x, y: (x, [y, y]), tuple),
        (Pair, Pair),
        (Record, dict),
    ],
)
def test_nests_become_those_of_tf_data(make, kind):
    dataset = to_tf_dataset(loader([make(x, int(y)) for x, y in zip(ROWS, LABELS, strict=True)]))
    batch = next(iter(dataset))
    assert isinstance(batch, kind)
    leaves = tf.nest.flatten(batch)
    (rows,) = (leaf for leaf in leaves if leaf.shape.rank == 3)
    labels = [leaf for leaf in leaves if leaf.shape.rank == 1]
    assert labels
    for label in labels:
        np.testing.assert_array_equal(rows[:, 0, 0], label)


def test_texts_and_bfloat16_arrive():
    source = [{"t": f"é{i}", "b": np.full(2, i, ml_dtypes.bfloat16)} for i in range(4)]
    (batch,) = to_tf_dataset(loader(source, 1))
    assert batch["b"].dtype == tf.bfloat16
    assert [text.decode() for text in batch["t"].numpy()] == [
        f"é{int(row[0])}" for row in tf.cast(batch["b"], tf.int32).numpy()
    ]


def test_batch_echoing_and_the_info():
    dataset = to_tf_dataset(pyecho.EchoLoader([ROWS[:8], ROWS[:5]], 2, with_info=True))
    found = [(len(batch), int(info.use[0])) for batch, info in dataset]
    assert found == [(8, 0), (8, 1), (5, 0), (5, 1)]


def test_tensors_of_torch_arrive():
    torch = pytest.importorskip("torch")
    from pyecho.torch import EchoLoader

    (batch,) = to_tf_dataset(EchoLoader(torch.ones(4, 3), 1, batch_size=4))
    assert (batch.dtype, batch.shape) == (tf.float32, (4, 3))


def test_objects_and_empty_sources_are_refused():
    with pytest.raises(pyecho.ConfigError, match="no tensors of objects"):
        to_tf_dataset(loader([{"x": 1.0, "o": object()}] * 4))
    with (
        pytest.raises(pyecho.ConfigError, match="the source is empty"),
        pytest.warns(RuntimeWarning, match="yielded nothing"),
    ):
        to_tf_dataset(loader([]))


@pytest.mark.parametrize("taken", [1, 2, 3, 5])
def test_break_leaves_nothing_behind(taken):
    before = set(threading.enumerate())
    plain, echoed = loader(), loader()
    dataset = to_tf_dataset(echoed)
    for _ in dataset.take(taken):
        pass
    # Up to two batches were a look; else the epoch is over, as with the loader itself.
    if taken > 2:
        plain.set_epoch(1)
    expected = [batch[1].copy() for batch in plain]
    for labels, (_, found) in zip(expected, dataset, strict=True):
        np.testing.assert_array_equal(labels, found)
    del dataset, found
    echoed.close()
    plain.close()
    assert set(threading.enumerate()) <= before


def test_error_of_the_source_ends_the_dataset_behind_what_was_read():
    def source():
        yield from ROWS[:16]
        raise OSError("the disk is gone")

    batches = iter(to_tf_dataset(loader(source())))
    assert [len(next(batches)) for _ in range(2)] == [16, 16]
    with pytest.raises(tf.errors.OpError, match="the disk is gone"):
        next(batches)
