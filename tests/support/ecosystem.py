"""Checks of an EchoLoader over the sources of any library."""

import gc
import multiprocessing
import threading
from collections import Counter

import numpy as np


def example(i):
    """Return example number `i`. Here, because worker processes cannot import a test."""
    return {"x": np.full(3, i, np.float32), "y": i}


def labels_of(batch):
    """Return the labels of a batch as Python numbers: its "y", or its last column."""
    labels = batch["y"] if isinstance(batch, dict) else batch[-1]
    return [int(label) for label in labels]


def check_epochs(make_loader, labels, *, keeps=()):
    """Check epochs: two, one that is left in the middle, another one; then that nothing is left.

    `make_loader` makes a loader with a factor of 2. `keeps`: names of threads that the library
    starts once for the process.
    """
    before = set(threading.enumerate())
    with make_loader() as loader:
        for left_after in (None, None, 3, None):
            found = Counter()
            for number, batch in enumerate(loader, 1):
                found.update(labels_of(batch))
                if number == left_after:
                    break
            if left_after is None:
                assert found == dict.fromkeys(labels, 2)
    del loader, batch
    gc.collect()
    for thread in set(threading.enumerate()) - before:
        if not thread.name.startswith(tuple(keeps)):
            thread.join(10)
            assert not thread.is_alive(), thread
    for child in multiprocessing.active_children():
        child.join(10)
        assert not child.is_alive(), child


def check_states(make_loader, *, taken=3):
    """Check that a new loader over a new source goes on where a state was taken."""
    with make_loader() as loader:
        whole = [labels_of(batch) for batch in loader]
    assert len(whole) > taken
    with make_loader() as loader:
        batches = iter(loader)
        for _ in range(taken):
            next(batches)
        state = loader.state_dict()
    with make_loader() as loader:
        loader.load_state_dict(state)
        assert [labels_of(batch) for batch in loader] == whole[taken:]
