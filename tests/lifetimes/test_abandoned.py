"""An iterator that is abandoned half-way, in any state, leaves no thread behind."""

import gc
import itertools
import threading
import weakref

import numpy as np
import pytest
from drivers import pyecho_threads
from scripts import run

import pyecho

# A bug of others: a producer blocked for ever on a full queue, whose consumer had gone.

CONFIGURATIONS = [
    pytest.param({}, id="batch echo"),
    pytest.param({"shuffle_buffer": 20}, id="shuffled batch echo"),
    pytest.param({"batch_size": 4}, id="example echo"),
    pytest.param({"batch_size": 4, "shuffle_buffer": 20, "threads": 4}, id="shuffled example echo"),
    pytest.param({"batch_size": 4, "augment": lambda b, rng: b}, id="augmented example echo"),
    pytest.param({"augment": lambda b, rng: b}, id="augmented batch echo"),
    pytest.param({"batch_size": 4, "progress": True, "shuffle_buffer": 20}, id="progress"),
]


class Rows:
    """A source that is read in a thread."""

    def __init__(self, count):
        self.count = count

    def __iter__(self):
        return (np.zeros(8) for _ in range(self.count))


def endless():
    return (np.full(8, number) for number in itertools.count())


def join_all(threads):
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), thread


@pytest.fixture(autouse=True)
def no_thread_is_left():
    gc.collect()  # loaders in tracebacks of earlier tests
    join_all(pyecho_threads())
    yield
    gc.collect()
    join_all(pyecho_threads())


@pytest.mark.parametrize("arguments", CONFIGURATIONS)
@pytest.mark.parametrize("taken", [1, 7])
def test_dropped_iterator_frees_its_threads(arguments, taken, capsys):
    loader = pyecho.EchoLoader(endless(), 3, **arguments)
    batches = iter(loader)
    for _ in range(taken):
        next(batches)
    threads = pyecho_threads()
    assert threads
    del batches
    join_all(threads)
    capsys.readouterr()


@pytest.mark.parametrize("arguments", CONFIGURATIONS)
def test_close_frees_the_threads_of_all_iterators(arguments, capsys):
    loader = pyecho.EchoLoader(Rows(1000), 3, **arguments)
    iterators = [iter(loader) for _ in range(3)]
    for iterator in iterators:
        next(iterator)
    assert pyecho_threads()
    loader.close()
    assert not pyecho_threads()
    for iterator in iterators:
        with pytest.raises(pyecho.Closed):
            for _ in iterator:
                pass
    capsys.readouterr()


@pytest.mark.parametrize("arguments", CONFIGURATIONS)
def test_dropping_the_loader_does_not_end_its_iterator(arguments, capsys):
    batches = iter(pyecho.EchoLoader(Rows(20), 2, **arguments))
    gc.collect()
    assert sum(len(batch) if "batch_size" in arguments else 1 for batch in batches) == 40
    capsys.readouterr()


def test_iterator_at_its_end_holds_nothing():
    class Source(list):
        pass

    source = Source(np.zeros((50, 8)))
    reference = weakref.ref(source)
    batches = iter(pyecho.EchoLoader(source, 2, batch_size=4))
    del source
    for batch in batches:
        del batch
    join_all(pyecho_threads())
    gc.collect()
    assert reference() is None


def test_thread_inside_a_blocked_source_ends_when_the_source_returns():
    release = threading.Event()

    def source():
        yield 1
        release.wait()
        yield 2

    uses = iter(pyecho.EchoLoader(source(), 2))
    next(uses)
    [feeder] = pyecho_threads()
    del uses
    assert feeder.is_alive()
    release.set()
    join_all([feeder])


def test_source_generator_is_closed_when_its_iterator_is_abandoned():
    closed = threading.Event()

    def source():
        try:
            yield from itertools.count()
        finally:
            closed.set()

    uses = iter(pyecho.EchoLoader(source(), 2))
    next(uses)
    del uses
    # In slices: a free-threaded Python destroys an object in the thread that made it.
    assert any(closed.wait(0.1) for _ in range(600))


def test_consumer_thread_blocked_in_a_wait_is_woken_by_close():
    release = threading.Event()

    def source():
        yield 1
        release.wait()

    loader = pyecho.EchoLoader(source(), 1)
    uses = iter(loader)
    next(uses)
    caught = []

    def consume():
        try:
            next(uses)
        except pyecho.EchoError as error:
            caught.append(error)

    consumer = threading.Thread(target=consume)
    consumer.start()
    closer = threading.Thread(target=loader.close)
    closer.start()
    consumer.join(60)
    release.set()
    closer.join(60)
    assert [type(error) for error in caught] == [pyecho.Closed]


def test_thousand_abandoned_iterators_leave_no_thread():
    loader = pyecho.EchoLoader(Rows(3), 2)
    for _ in range(1000):
        next(iter(loader))
    join_all(pyecho_threads())
    assert loader.stats().emitted == 1000


@pytest.mark.parametrize("threads", [0, 1])
def test_item_may_close_the_loader_when_it_dies(threads):
    """An item dies between the reading and the copying of its leaves."""

    class Item(dict):
        def __del__(self):
            x = self["x"]
            if isinstance(x, np.ndarray) and x.shape == (4,) and x[0] == 5:  # no spec, no batch
                loader.close()

    class Source:
        def __iter__(self):
            return (Item(x=np.full(4, number)) for number in range(10))

    loader = pyecho.EchoLoader(Source(), 2, batch_size=2, shuffle_buffer=2, threads=threads)
    with pytest.raises(pyecho.Closed):
        for _ in loader:
            pass


STOPPER = """
import pyecho

class Stopper:
    armed = False

    def __del__(self):
        if self.armed:
            buffer.stop()

spec = pyecho.spec_of({"number": 0, "tag": Stopper()})
buffer = pyecho.EchoBuffer(
    spec, factor=pyecho.Adaptive(max=2), batch_size=2, shuffle_buffer=4, threads=0
)
Stopper.armed = True
batches = iter(buffer)
try:
    for number in range(10_000):
        buffer.put({"number": number, "tag": Stopper()}, timeout=60)
        if number % 2 == 1:
            next(batches)
except pyecho.Closed:
    print("closed")
"""


def test_object_that_travels_by_reference_may_stop_the_buffer_as_it_dies():
    assert run(STOPPER) == "closed\n"
