"""tf.data as a source."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from ecosystem import check_epochs, check_states

import pyecho


def dataset():
    rows = {"x": np.arange(120, dtype=np.float32).reshape(40, 3), "y": np.arange(40)}
    return tf.data.Dataset.from_tensor_slices(rows)


@pytest.mark.parametrize("batched", [False, True])
def test_epochs_and_states(batched):
    def echoed():
        source = dataset().batch(5).prefetch(2) if batched else dataset()
        return pyecho.EchoLoader(source, 2, batch_size=8, unbatch=batched)

    check_epochs(echoed, range(40))
    check_states(echoed)


def test_numpy_iterator_of_a_dataset():
    loader = pyecho.EchoLoader(dataset().as_numpy_iterator(), 2, batch_size=8)
    assert sum(len(batch["y"]) for batch in loader) == 80
