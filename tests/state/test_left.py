"""A loop that was left keeps its place, and no thread."""

import itertools
import threading
from collections import deque

import pytest
from drivers import GoesOn
from waiting import join_threads

import pyecho
import pyecho.torch


class Yielding:
    def __iter__(self):
        yield from range(40)


class Rows:
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return index


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


class Sized(GoesOn):
    def __init__(self):
        super().__init__(14)

    def __len__(self):
        return 14


@pytest.mark.parametrize("payload", [True, False])
@pytest.mark.parametrize("augment", [None, lambda batch, rng: batch])
@pytest.mark.parametrize("threads", [0, None])
@pytest.mark.parametrize("source", [Rows, Sized])
@pytest.mark.parametrize("epochs", [3, None])
def test_state_after_a_break_on_the_last_batch_of_a_pass_is_the_next_one(
    epochs, source, threads, augment, payload
):
    def loader():
        options = {"shuffle_buffer": 1, "epochs": epochs, "threads": threads, "augment": augment}
        return pyecho.EchoLoader(source(), 1, batch_size=2, **options)

    whole = loader()
    passes = [[batch.tolist() for batch in whole] for _ in range(3)]
    for number in range(2):
        left = loader()
        for _ in range(number):
            for batch in left:
                del batch
        for _ in zip(range(len(passes[0])), left, strict=False):  # and no more
            pass
        resumed = loader()
        resumed.load_state_dict(left.state_dict(payload=payload or source is Sized))
        for wanted in passes[number + 1 :]:
            assert [batch.tolist() for batch in resumed] == wanted
