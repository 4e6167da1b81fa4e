"""Sources that fill slots themselves, through the C interface."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from native import CLOSED, FOREVER, OK, Numbers, Slot, handle_of
from waiting import wait_until

import pyecho
import pyecho.torch


def rows(loader):
    return np.array([int(x) for batch in loader for x in batch["x"]], np.int64)


def loader_of(source, factor=3, **options):
    options = {"batch_size": 8, "shuffle_buffer": 40} | options
    return pyecho.EchoLoader(source, factor, **options)


def run(program):
    support = Path(__file__).parents[1] / "support"  # the source folder would hide the package
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=support, capture_output=True, text=True, timeout=60)


# ---------------------------------------------------------------- epochs


@pytest.mark.parametrize("options", [{}, {"threads": 0}, {"threads": 2}, {"epochs": 2}])
@pytest.mark.parametrize("producers", [1, 3])
def test_native_source_has_each_example_as_often_as_the_factor(options, producers):
    source = Numbers(200, threads=producers)
    loader = loader_of(source, **options)
    assert len(loader) == 75
    first_two = np.concatenate([rows(loader), rows(loader)])  # which flow with epochs=2
    assert (np.bincount(first_two, minlength=200) == 6).all()
    assert (np.bincount(rows(loader), minlength=200) == 3).all()
    assert source.epochs == [0, 1, 2]
    assert source.statuses == []
    stats = loader.stats()
    assert (stats.fresh, stats.emitted) == (600, 1800)
    assert stats.source_seconds > 0
    loader.close()


# ---------------------------------------------------------------- ends


def test_epoch_that_ends_early_ends_the_pass():
    source = Numbers(10**9)
    loader = loader_of(source)
    for _ in range(3):
        for batch in loader:
            assert len(batch["x"]) == 8
            break
    loader.close()
    assert set(source.statuses) == {CLOSED}


def test_producers_may_wait_with_the_gil():
    loader = loader_of(Numbers(300, with_gil=True), shuffle_buffer=4)
    assert len(rows(loader)) == 900


def test_exception_comes_after_everything_before_it():
    class Failing(Numbers):
        def __pyecho_feed__(self, capsule):
            super().__pyecho_feed__(capsule)
            raise LookupError("the shard is gone")

    loader = loader_of(Failing(20))
    found = []
    with pytest.raises(LookupError, match="the shard is gone"):
        found.extend(int(x) for batch in loader for x in batch["x"])
    assert len(found) == 60


def test_failure_told_through_c_is_a_runtime_error():
    class Failing(Numbers):
        def __pyecho_feed__(self, capsule):
            super().__pyecho_feed__(capsule)
            self.calls.fail(handle_of(capsule), b"the shard is gone")

    loader = loader_of(Failing(20))
    found = []
    with pytest.raises(RuntimeError, match="the shard is gone"):
        found.extend(int(x) for batch in loader for x in batch["x"])
    assert len(found) == 60


def test_failure_need_not_be_told_in_utf8():
    class Failing(Numbers):
        def __pyecho_feed__(self, capsule):
            assert self.calls.fail(handle_of(capsule), b"caf\xe9") == OK

    with pytest.raises(RuntimeError, match=r"^caf\ufffd$"):
        rows(loader_of(Failing(10)))


def test_thread_left_waiting_is_an_error_and_puts_nothing_into_the_next_pass():
    class Leaving(Numbers):
        left = None
        taken = threading.Event()

        def __pyecho_feed__(self, capsule):
            if self.left is not None:
                super().__pyecho_feed__(capsule)
                return
            handle = handle_of(capsule)

            def work():
                while (status := self.calls.put(handle, 7)) == OK:
                    pass
                self.statuses.append(status)

            self.left = threading.Thread(target=work)
            self.left.start()
            assert self.taken.wait(60)
            before = self.calls.waited_ns(handle)
            assert wait_until(lambda: self.calls.waited_ns(handle) > before + 10**8)

    source = Leaving(50)
    loader = loader_of(source)
    iterator = iter(loader)
    with pytest.raises(pyecho.EchoError, match="1 threads waited"):
        next(iterator)
        source.taken.set()
        source.left.join(60)  # with the pass, and no room is made meanwhile
        for _ in iterator:
            pass
    assert source.statuses == [CLOSED]
    assert (np.bincount(rows(loader)) == 3).all()


def test_source_that_has_become_shorter_than_a_state_is_an_error():
    class Unsized(Numbers):
        def __len__(self):
            raise TypeError

    options = {"batch_size": 4, "shuffle_buffer": 8, "epochs": 2}
    loader = loader_of(
        Unsized(1000), **options
    )  # more than there are slots, so this is the first pass
    iterator = iter(loader)
    for _ in range(40):
        next(iterator)
    state = loader.state_dict()
    shorter = loader_of(Unsized(20), **options)
    shorter.load_state_dict(state)
    with pytest.raises(pyecho.CheckpointError, match="ended after 20 examples"):
        rows(shorter)


def test_producers_run_in_a_process_with_a_sub_interpreter():
    program = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
from native import Numbers
import pyecho
kept = interpreters.create()
print(sum(len(b["x"]) for b in pyecho.EchoLoader(Numbers(1000, threads=2), 2, batch_size=8)))
"""
    done = run(program)
    assert (done.returncode, done.stdout) == (0, "2000\n"), done.stderr


def test_slot_left_open_is_an_error_and_the_next_epoch_works():
    class Forgetful(Numbers):
        def __pyecho_feed__(self, capsule):
            super().__pyecho_feed__(capsule)
            if self.epochs[-1] == 0:
                self.calls.reserve(handle_of(capsule), ctypes.byref(Slot()), 1, FOREVER, None)

    loader = loader_of(Forgetful(20))
    with pytest.raises(pyecho.EchoError, match="1 slots were reserved"):
        rows(loader)
    assert len(rows(loader)) == 60


def test_closing_ends_the_pass_only():
    class Closing(Numbers):
        def __pyecho_feed__(self, capsule):
            super().__pyecho_feed__(capsule)
            assert self.calls.close(handle_of(capsule)) == OK
            assert self.calls.put(handle_of(capsule), 7) == CLOSED

    loader = loader_of(Closing(20), epochs=2)
    assert [len(rows(loader)) for _ in range(2)] == [60, 60]


def test_capsule_that_is_kept_puts_nothing_into_the_next_pass():
    class Keeping(Numbers):
        kept = ()

        def __pyecho_feed__(self, capsule):
            for old in self.kept:
                assert self.calls.put(handle_of(old), 7) == CLOSED
            self.kept = (*self.kept, capsule)
            super().__pyecho_feed__(capsule)

    loader = loader_of(Keeping(20))
    for _ in range(3):
        assert (np.bincount(rows(loader)) == 3).all()


def test_exit_in_the_middle_is_silent():
    program = """
import sys
from native import Numbers
import pyecho
loader = pyecho.EchoLoader(Numbers(10**9), 2, batch_size=8)
for number, batch in enumerate(loader):
    if number == 3:
        sys.exit(0)
"""
    done = run(program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": None, "shuffle_buffer": 0},
        {"unbatch": True},
        {"collate_fn": list},
    ],
)
def test_native_source_needs_a_batch_size(options):
    with pytest.raises(pyecho.ConfigError, match="batch_size"):
        loader_of(Numbers(10), **options)


def test_spec_is_checked():
    class Wrong(Numbers):
        def __pyecho_spec__(self):
            return {"x": pyecho.Field((), object)}

    with pytest.raises(pyecho.ConfigError, match="__pyecho_spec__"):
        rows(loader_of(Wrong(10)))
    source = Numbers(10)
    source.__pyecho_spec__ = None
    with pytest.raises(pyecho.ConfigError, match="__pyecho_spec__"):
        rows(loader_of(source))
