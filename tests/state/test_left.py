"""A loop that was left keeps its place, and no thread."""

import itertools
import threading
from collections import deque

import pytest
from waiting import join_threads

import pyecho
import pyecho.torch


class Yielding:
    def __iter__(self):
        yield from range(40)


OPTIONS = {"batch_size": 3, "shuffle_buffer": 6, "with_info": True}


def left_after(loader, count):
    """Take some batches in a loop, and leave it."""
    deque(itertools.islice(loader, count), maxlen=0)


def test_iteration_that_was_left_keeps_no_thread_and_no_pass():
    closed = threading.Event()

    class Closing:
        def __iter__(self):
            try:
                yield from range(1000)
            finally:
                closed.set()

    loader = pyecho.EchoLoader(Closing(), 2, **OPTIONS)
    left_after(loader, 5)
    join_threads()
    assert closed.is_set()
    assert loader.state_dict()["position"]["delivered"] == 5


def test_what_was_left_ends_with_its_loader():
    loader = pyecho.EchoLoader(Yielding(), 2, **OPTIONS)
    left_after(loader, 5)
    loader.close()
    with pytest.raises(pyecho.Closed):
        loader.state_dict()
