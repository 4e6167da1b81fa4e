"""torchdata.nodes: a Loader goes on by its own state."""

import pytest

nodes = pytest.importorskip("torchdata.nodes")

import numpy as np
from ecosystem import check_epochs, check_states

import pyecho


def echoed(threads=2):
    node = nodes.IterableWrapper(range(40))
    node = nodes.ParallelMapper(node, lambda i: {"x": float(i), "y": i}, threads, method="thread")
    return pyecho.EchoLoader(nodes.Loader(nodes.Prefetcher(node, 4)), 2, batch_size=8)


def test_epochs_and_states():
    check_epochs(echoed, range(40))
    check_states(echoed)


def test_batches_of_nodes_are_split():
    def echoed():
        batches = [
            {"x": np.zeros((5, 2)), "y": np.arange(begin, begin + 5)} for begin in range(0, 40, 5)
        ]
        loader = nodes.Loader(nodes.IterableWrapper(batches))
        return pyecho.EchoLoader(loader, 2, batch_size=8, unbatch=True)

    check_epochs(echoed, range(40))
    check_states(echoed)
