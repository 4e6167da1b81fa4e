"""What a loop that was left leaves behind."""

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


@pytest.mark.parametrize("payload", [True, False])
@pytest.mark.parametrize("factor", [1, pyecho.Adaptive(3)])
def test_state_after_the_last_step_goes_on_though_no_item_follows_yet(factor, payload):
    def loader():
        options = {"batch_size": 3, "shuffle_buffer": 6, "steps_per_epoch": 6}
        return pyecho.EchoLoader(Yielding(), factor, **options)

    with loader() as first, loader() as second:
        assert sum(1 for _ in itertools.islice(first, 6)) == 6
        second.load_state_dict(first.state_dict(payload=payload))
        assert sum(1 for _ in second) == 6
