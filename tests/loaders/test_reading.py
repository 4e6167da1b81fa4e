"""Reading the source: in which thread, how far ahead, and what a blocked source leaves possible."""

import contextlib
import contextvars
import itertools
import sqlite3
import threading

import numpy as np
import pytest
import torch
from drivers import (
    Blocked,
    Iterated,
    drivers,
    flat,
    levels,
    loader_of,
    pyecho_threads,
    repeated,
    waiting_drivers,
)
from interrupts import interrupted
from torch.utils import data
from waiting import wait_until

import pyecho
import pyecho.torch

VARIABLE = contextvars.ContextVar("VARIABLE", default="default")


# ---------------------------------------------------------------- in which thread

CONTEXTS = {
    "none": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.float16),
    "autocast without cache": lambda: torch.autocast("cpu", cache_enabled=False),
    "default device": lambda: torch.device("meta"),
    "none again": contextlib.nullcontext,
}


def state():
    """Return the thread's context as a source can see it."""
    autocast = torch.is_autocast_enabled("cpu")
    return (
        VARIABLE.get(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        autocast and (torch.get_autocast_dtype("cpu"), torch.is_autocast_cache_enabled()),
        torch.get_default_device().type,
    )


@waiting_drivers
@pytest.mark.parametrize("epochs", [None, 2])
def test_items_are_read_by_one_thread_in_the_callers_context(driver, epochs):
    class Noting(Iterated):
        noted = ()

        def __iter__(self):
            self.note(0)  # the pass begins where it is read
            return map(self.note, self.items)

        def note(self, item):
            thread = threading.current_thread()
            self.noted += ((thread.name, thread.daemon, *state()),)
            return item

    thread = ("MainThread", False) if driver == "consumer" else ("pyecho-feeder", True)
    source = Noting(range(30))
    loader = loader_of(driver, source, epochs=epochs)
    noted = 0
    for name in ("none", *CONTEXTS):  # the first two passes may flow into each other
        token = VARIABLE.set(name)
        with CONTEXTS[name]():
            assert flat(loader) == repeated(range(30))
            assert set(source.noted[noted:]) <= {(*thread, *state())}
        VARIABLE.reset(token)
        noted = len(source.noted)
    assert noted == 31 * 8


def test_source_sees_what_it_set_in_its_context_and_the_caller_does_not():
    def source():
        for number in range(30):
            VARIABLE.set(number)
            yield number
            assert VARIABLE.get() == number

    assert flat(loader_of("feeder", source())) == repeated(range(30))
    assert VARIABLE.get() == "default"


@waiting_drivers
def test_source_may_keep_what_belongs_to_one_thread(driver):
    class Rows:
        def __iter__(self):
            database = sqlite3.connect(":memory:")  # of this thread alone
            try:
                database.execute("create table rows (x)")
                database.executemany("insert into rows values (?)", [(n,) for n in range(3000)])
                yield from (x for (x,) in database.execute("select x from rows order by x"))
            finally:
                database.close()

    loader = loader_of(driver, Rows())
    for _ in range(2):
        assert flat(loader) == repeated(range(3000))
    state = loader.state_dict(payload=False)
    for number in range(40):  # left in several ways; a pass that is closed elsewhere is an error
        left = iter(loader)
        next(left)
        if number % 4 == 1:
            loader.set_epoch(number)
        elif number % 4 == 2:
            loader.state_dict()
        elif number % 4 == 3:
            loader.load_state_dict(state)
        del left
    assert flat(loader) == repeated(range(3000))


def test_pass_that_is_left_in_a_source_with_a_state_ends_in_the_thread_that_reads():
    ended, waiting = [], threading.Event()

    class Rows:
        def state_dict(self):
            return {}

        def load_state_dict(self, state):
            pass

        def __iter__(self):
            try:
                for number in range(100):
                    yield number
                    waiting.wait(0.01)
            finally:
                ended.append(threading.current_thread().name)

    loader = loader_of("feeder", Rows())
    for _ in loader:
        break
    loader.set_epoch(7)
    waiting.set()
    assert wait_until(lambda: ended == ["pyecho-feeder"])


@levels
def test_pyechos_threads_are_daemons_that_serve_all_epochs(batch_size):
    loader = loader_of("augmented", range(20), batch_size=batch_size)
    before, seen = set(pyecho_threads()), set()
    for _ in range(3):
        for _ in loader:
            seen.update(pyecho_threads())
    seen -= before
    assert sorted(thread.name for thread in seen) == ["pyecho-augment"] * 2 + ["pyecho-feeder"]
    assert all(thread.daemon for thread in seen)
    loader.close()
    assert not seen & set(pyecho_threads())


def test_data_loader_with_persistent_workers_is_read_by_one_feeder_at_a_time():
    source = data.DataLoader(
        torch.arange(400), batch_size=4, num_workers=2, persistent_workers=True
    )
    loader = pyecho.torch.EchoLoader(source, 2, shuffle_buffer=3)
    for taken in (1, 7, 3):
        assert len(list(itertools.islice(loader, taken))) == taken
        batches = list(loader)
        assert sorted(torch.cat(batches).tolist()) == repeated(range(400))


# ---------------------------------------------------------------- how far


@drivers
@levels
def test_source_is_read_once_in_order_and_no_further_ahead_than_asked(driver, batch_size):
    """A bug of others: prefetch off by one, or the last prefetched items dropped."""
    capacity, prefetch, asked = 8, 3, []

    class Noting(list):
        def __iter__(self):
            for item in range(3000):
                asked.append(item)
                yield np.full(2000, item)

    loader = loader_of(
        driver, Noting(), 1, batch_size=batch_size, shuffle_buffer=capacity, prefetch=prefetch
    )
    batches, emitted = iter(loader), []
    for _ in range(10):
        emitted += np.copy(next(batches)).reshape(-1, 2000)[:, 0].tolist()
        # Small items and batches go in groups of 4 MiB; see the documentation of `prefetch`.
        ahead = max(prefetch, 2**22 // (2000 * 8 * (batch_size or 1))) * (batch_size or 1)
        assert len(asked) <= len(emitted) + capacity + 4 * ahead
    for batch in batches:
        emitted += np.copy(batch).reshape(-1, 2000)[:, 0].tolist()
    assert asked == list(range(3000))
    assert sorted(emitted) == asked, "the items read ahead come out, too"


# ---------------------------------------------------------------- sources that block


@pytest.mark.parametrize("driver", ["feeder", "workers", "augmented"])
@levels
def test_iter_returns_at_once_while_the_source_blocks_and_next_answers_ctrl_c(driver, batch_size):
    source = Blocked(range(40), after=0)
    loader = loader_of(driver, source, batch_size=batch_size)
    batches = iter(loader)
    interrupted(lambda: next(batches), source.inside)
    batches = iter(loader)
    source.release.set()
    assert flat(batches) == flat(loader_of(driver, range(40), batch_size=batch_size))


@pytest.mark.parametrize("driver", ["feeder", "workers", "augmented"])
@pytest.mark.parametrize("one_shot", [False, True])
@pytest.mark.filterwarnings("ignore:.* goes on where that one was left")
def test_new_iteration_waits_for_the_thread_in_the_source_and_answers_ctrl_c(driver, one_shot):
    source = Blocked(range(40), after=20)
    loader = loader_of(driver, iter(source) if one_shot else source)
    uses = iter(loader)
    emitted = [next(uses) for _ in range(4)]
    assert source.inside.wait(60)
    del uses
    uses = iter(loader)

    source.inside.clear()

    def blocked():
        source.inside.set()
        emitted.extend(uses if one_shot else [next(uses)])

    interrupted(blocked, source.inside)
    source.release.set()
    rest = flat(uses)
    assert (emitted if one_shot else []) + rest == repeated(range(40))


def test_set_epoch_after_ctrl_c_reads_the_pass_that_was_chosen():
    class Told(Blocked):
        told = ()

        def set_epoch(self, epoch):
            self.told += (epoch,)

    source = Told(range(10), after=0)
    loader = loader_of("feeder", source, shuffle_buffer=5)
    interrupted(lambda: next(iter(loader)), source.inside)
    source.release.set()
    loader.set_epoch(7)
    expected = loader_of("in memory", range(10), shuffle_buffer=5)
    expected.set_epoch(7)
    assert flat(loader) == flat(expected)
    assert source.told[-1] == 7


@pytest.mark.parametrize("driver", ["feeder", "augmented"])
def test_next_of_a_second_thread_is_refused_before_the_first_batch(driver):
    source = Blocked(range(10), after=0)
    loader = loader_of(driver, source)
    uses = iter(loader)
    emitted = []
    first = threading.Thread(target=lambda: emitted.extend(uses))
    first.start()
    assert source.inside.wait(60)
    for late in (uses, iter(loader)):
        with pytest.raises(pyecho.EchoError, match="another thread"):
            next(late)
    source.release.set()
    first.join(60)
    assert emitted == repeated(range(10))
