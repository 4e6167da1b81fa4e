"""Two Ctrl-C at the end of an iteration, and one in the lock of a progress bar."""

import contextlib
import sys
import threading

import numpy as np
import pytest
from interrupt_points import Interrupts, taken_under

import pyecho

ROWS = np.arange(12)
OPTIONS = {"batch_size": 3, "threads": 0, "seed": 1}
FORMS = {
    "plain": {},
    "shards": {"shards": 2},
    "epochs": {"epochs": 4},
    "progress": {"progress": True},
    "thread": {"threads": 1},
}


def made(form, source=ROWS):
    """Return a loader whose epochs differ."""
    return pyecho.EchoLoader(source, 2, **(OPTIONS | FORMS[form]))


@pytest.mark.parametrize("gap", [1, 3, 8])
@pytest.mark.parametrize("form", FORMS)
def test_interrupts_at_the_end_of_an_iteration_skip_and_repeat_nothing(form, gap):
    whole = made(form)
    epochs = [[batch.tolist() for batch in whole] for _ in range(3)]
    point, reached = 0, True
    while reached:
        point += 1
        loader = made(form)
        iterator = iter(loader)
        for batch in epochs[0]:
            assert next(iterator).tolist() == batch
        interrupts = Interrupts(point, gap)
        assert taken_under(interrupts, iterator) == []
        reached = len(interrupts.left) < 2
        for epoch in epochs[1:]:
            assert [batch.tolist() for batch in loader] == epoch, point
    assert point > 3


@pytest.mark.parametrize("form", ["plain", "shards", "epochs"])
def test_interrupt_while_a_loader_is_closed_is_raised(form, monkeypatch):
    dropped, point, reached = [], 0, True
    monkeypatch.setattr(sys, "unraisablehook", lambda each: dropped.append(each.exc_type))
    while reached:
        point += 1
        loader = made(form)
        iterator = iter(loader)
        next(iterator)
        interrupts = Interrupts(point)
        completed = interrupts.strikes(loader.close)
        reached = not interrupts.left
        assert completed != reached, f"point {point}"
        loader.close()
    assert not dropped
    assert point > 10


def test_progress_bars_leave_no_thread():
    pytest.importorskip("tqdm")
    before = {*threading.enumerate()}
    loader = made("progress")
    for _ in range(3):
        for _ in loader:
            pass
    loader.close()
    assert before >= {*threading.enumerate()}


def test_interrupt_in_the_lock_of_a_progress_bar_loses_nothing_and_leaves_it_free():
    tqdm = pytest.importorskip("tqdm")

    class Interrupted:
        """The lock of tqdm's, that Ctrl-C hits once it is taken."""

        def __init__(self, lock):
            self.lock, self.at, self.taken = lock, None, 0

        def acquire(self, *args, **named):
            took = self.lock.acquire(*args, **named)
            self.taken += 1
            if self.taken == self.at:
                raise KeyboardInterrupt
            return took

        def release(self):
            self.lock.release()

        def __enter__(self):
            self.acquire()

        def __exit__(self, *exception):
            self.release()

    expected = [batch.tolist() for batch in made("progress")]
    before = tqdm.tqdm.get_lock()
    try:
        for at in range(1, 9):
            lock = Interrupted(before)
            tqdm.tqdm.set_lock(lock)
            taken, iterator = [], iter(made("progress"))
            lock.at = lock.taken + at
            for _ in range(2):
                with contextlib.suppress(KeyboardInterrupt):
                    taken.extend(map(np.ndarray.tolist, iterator))
            assert taken == expected, at
    finally:
        tqdm.tqdm.set_lock(before)
