"""Many threads on one buffer or loader. Meant for a Python without a GIL, and true with one."""

import collections
import contextlib
import queue
import random
import sys
import threading
import time

import numpy as np
import pytest
from waiting import wait_until

import pyecho

ROW = {"number": pyecho.Field((), np.int64), "name": pyecho.Field((), object)}
ROUNDS = 200


def run_all(*targets):
    """Run functions in a thread each; raises what the first of them raises."""
    errors = []

    def guarded(target):
        try:
            target()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]


def until(over, target):
    """Return a function that also sets the event, so that the threads beside it end."""

    def call():
        try:
            target()
        finally:
            over.set()

    return call


def row(number):
    return {"number": number, "name": f"row {number}"}


def batch(numbers):
    return {"number": np.array(numbers), "name": [f"row {number}" for number in numbers]}


def test_extension_leaves_the_gil_off():
    enabled = getattr(sys, "_is_gil_enabled", lambda: True)
    if enabled():
        pytest.skip("this Python has a GIL, or was told to use it")
    assert "pyecho._core" in sys.modules


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("factor", [3, pyecho.Adaptive(4, 1)])
def test_rows_of_many_producers_get_their_uses(threads, factor):
    producers, rows = 4, 60 * 8
    buffer = pyecho.EchoBuffer(
        ROW, batch_size=16, factor=factor, shuffle_buffer=64, threads=threads
    )
    left = [producers]
    lock = threading.Lock()
    seen = collections.Counter()

    def produce(which):
        numbers = list(range(which * rows, (which + 1) * rows))
        for begin in range(0, rows, 8):
            if begin % 16:
                buffer.put_batch(batch(numbers[begin : begin + 8]))
            else:
                for number in numbers[begin : begin + 8]:
                    buffer.put(row(number))
        with lock:
            left[0] -= 1
            if not left[0]:
                buffer.close()

    def consume():
        for taken in buffer:
            assert taken["name"] == [f"row {number}" for number in taken["number"]]
            seen.update(taken["number"].tolist())
            buffer.stats()

    run_all(consume, *(lambda which=which: produce(which) for which in range(producers)))
    assert set(seen) == set(range(producers * rows))
    uses = set(seen.values())
    assert uses == {3} if factor == 3 else uses <= {1, 2, 3, 4}
    assert buffer.stats().fresh == producers * rows


@pytest.mark.parametrize("augment", [None, lambda batch, rng: {"rows": [batch["rows"][::-1]]}])
def test_batch_returns_its_memory_when_another_thread_drops_it(augment):
    """Without a GIL, the thread that made an object destroys it, and this one waits."""
    source = [{"rows": np.arange(3)}] * 8
    loader = pyecho.EchoLoader(source, 1, batch_size=4, threads=0, augment=augment)
    handed, over = queue.SimpleQueue(), threading.Event()

    def make():
        batches = iter(loader)
        handed.put(next(batches))
        handed.put(None)  # here this thread has let go of it
        assert over.wait(60)

    def drop():
        taken, _ = handed.get(), handed.get()
        made = 1 if augment is None else 2  # the last one ahead
        try:
            while loader.stats().outstanding_leases < made:
                assert not over.wait(0.001)
            del taken
            assert loader.stats().outstanding_leases == made - 1
        finally:
            over.set()

    run_all(make, drop)


@pytest.mark.filterwarnings("ignore:the consumer keeps batches:ResourceWarning")
@pytest.mark.parametrize("seed", range(6))
def test_any_call_from_any_thread_at_any_time(seed):
    """Nothing crashes or hangs, whatever ends the buffer; and nothing comes out too often."""
    buffer = pyecho.EchoBuffer(ROW, batch_size=4, factor=3, shuffle_buffer=16)
    refused = (pyecho.EchoError, ZeroDivisionError)
    seen = collections.Counter()
    over = threading.Event()

    def produce(which):
        generator = random.Random(seed * 10 + which)
        number = which * 10**6
        while not over.is_set():
            with contextlib.suppress(*refused):
                if generator.random() < 0.5:
                    buffer.put(row(number), timeout=0.01)
                else:
                    buffer.put_batch(batch([number, number + 1]), timeout=0.01)
            number += 2

    def iterate():
        while not over.is_set():
            with contextlib.suppress(*refused):
                for taken in buffer:
                    assert taken["name"] == [f"row {number}" for number in taken["number"]]
                    seen.update(taken["number"].tolist())

    def look():
        while not over.is_set():
            buffer.stats()
            with contextlib.suppress(*refused):
                buffer.state_dict()

    def finish():
        wait_until(lambda: len(seen) > 100, seconds=1)  # threads may refuse one another for long
        (buffer.close, buffer.stop, lambda: buffer.fail(ZeroDivisionError()))[seed % 3]()
        time.sleep(0.1)
        buffer.stop()

    producers = (lambda which=which: produce(which) for which in range(2))
    run_all(until(over, finish), look, iterate, iterate, *producers)
    assert max(seen.values(), default=0) <= 3


@pytest.mark.parametrize("options", [{}, {"batch_size": 8}, {"shuffle_buffer": 10}])
@pytest.mark.parametrize("augmented", [False, True])
def test_loader_is_used_by_one_thread_and_watched_by_others(options, augmented):
    if augmented:
        options = options | {"augment": lambda item, rng: item, "augment_workers": 2}
    loader = pyecho.EchoLoader([np.full(4, number) for number in range(60)], 2, **options)
    over = threading.Event()

    def iterate():
        for _ in range(3):
            seen = collections.Counter()
            for taken in loader:
                seen.update(np.atleast_2d(taken)[:, 0].tolist())
                if sum(seen.values()) == 24:
                    loader.state_dict()
            assert seen == collections.Counter(dict.fromkeys(range(60), 2))

    def look():
        while not over.is_set():
            loader.stats()

    def intrude():
        while not over.is_set():
            iterator = iter(loader)  # unfinished before it has begun
            del iterator

    run_all(until(over, iterate), look, intrude)
    loader.close()


@pytest.mark.parametrize("options", [{}, {"batch_size": 4, "threads": 1}])
def test_threads_that_share_an_iterator_get_an_error_or_a_batch(options):
    loader = pyecho.EchoLoader([np.full(4, number) for number in range(300)], 2, **options)
    iterator = iter(loader)
    seen = collections.Counter()
    lock = threading.Lock()

    def take():
        while True:
            try:
                taken = next(iterator)
            except StopIteration:
                return
            except pyecho.EchoError:
                continue
            with lock:
                seen.update(np.atleast_2d(taken)[:, 0].tolist())

    run_all(take, take, take)
    assert seen == collections.Counter(dict.fromkeys(range(300), 2))


def endless():
    while True:
        time.sleep(0.001)
        yield np.zeros(2)


@pytest.mark.filterwarnings("ignore:the source .generator. is an iterator:RuntimeWarning")
@pytest.mark.parametrize("how", ["close", "begin"])
def test_loader_ends_while_a_thread_waits_for_its_source(how):
    for _ in range(20):
        loader = pyecho.EchoLoader(endless(), 2)
        started = threading.Event()

        def iterate(loader=loader, started=started):
            with contextlib.suppress(pyecho.EchoError):
                for _ in loader:
                    started.set()

        def end(loader=loader, started=started):
            started.wait(10)
            if how == "begin":
                with contextlib.suppress(pyecho.EchoError):
                    next(iter(loader))
            loader.close()

        run_all(iterate, end)
        del loader


def test_items_of_other_threads_may_change_while_they_are_read():
    """The output is unspecified then, but nothing crashes."""
    item = {"a": 1, "b": [2, 3]}
    spec = {"a": pyecho.Field((), np.int64), "b": [pyecho.Field((), np.int64)] * 2}
    buffer = pyecho.EchoBuffer(spec, batch_size=2, factor=1, shuffle_buffer=4096)
    loader = pyecho.EchoLoader([{"b": item["b"], "c": [item]}] * 50, 3)
    over = threading.Event()

    def change():
        while not over.is_set():
            item["b"].append(4)
            item["b"].pop()
            item["c"] = 5
            del item["c"]

    def read():
        for _ in range(ROUNDS * 5):
            with contextlib.suppress(pyecho.SpecMismatch):
                buffer.put(item)
        for _ in range(20):
            # RuntimeError: without a GIL, a dict may change while its keys are listed.
            with contextlib.suppress(pyecho.EchoError, RuntimeError):
                for _ in loader:
                    pass

    run_all(change, until(over, read))
