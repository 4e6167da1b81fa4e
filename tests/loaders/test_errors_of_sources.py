"""A source that fails: its exception reaches the consumer, after every use of what came before."""

import gc
import os
import signal
import traceback

import numpy as np
import pytest
from drivers import Iterated, drivers, flat, levels, loader_of, repeated, waiting_drivers
from waiting import wait_until

import pyecho

torch = pytest.importorskip("torch")


class Unreadable(Exception):
    def __init__(self, path, code):
        super().__init__(path, code)
        self.path = path


class Failing(Iterated):
    """Raises after its items, as often as it is told."""

    def __init__(self, items, error, failures=1):
        super().__init__(items)
        self.error, self.failures = error, failures

    def __iter__(self):
        yield from super().__iter__()
        if self.failures:
            self.failures -= 1
            raise self.error


def outcome(loader, error):
    """Return the emissions of a loader before it raises `error`, which must be the same object."""
    emitted, batches = [], iter(loader)
    with pytest.raises(type(error)) as raised:
        for batch in batches:
            emitted += flat([batch])
    assert raised.value is error
    if emitted:  # otherwise the epoch has not begun, and next() would begin it again
        assert [next(batches, "end") for _ in range(2)] == ["end"] * 2
    return emitted


# Not exceptions: those would outlive their test, and the loaders in their tracebacks with them.
ERRORS = [(Unreadable, "a.png", 7), (BaseException, "odd"), (SystemExit, 3)]


@waiting_drivers
@levels
@pytest.mark.parametrize("shuffle_buffer", [0, 4])
@pytest.mark.parametrize("count", [0, 9])
@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind[0].__name__)
def test_exception_follows_every_use_of_the_items_before_it_and_the_next_epoch_is_whole(
    driver, batch_size, shuffle_buffer, count, kind
):
    error = kind[0](*kind[1:])
    source = Failing(range(count), error)
    loader = loader_of(driver, source, 3, batch_size=batch_size, shuffle_buffer=shuffle_buffer)
    emitted = outcome(loader, error)
    assert sorted(emitted) == repeated(range(count), 3), "the last batch may be short"
    assert "in __iter__" in "".join(traceback.format_exception(error))
    source.items = range(5)
    assert sorted(flat(loader)) == repeated(range(5), 3)


@waiting_drivers
def test_stop_iteration_ends_a_source_but_is_an_error_inside_a_generator(driver):
    class Counting:
        count = 0

        def __iter__(self):
            return self

        def __next__(self):
            self.count += 1
            if self.count > 3:
                raise StopIteration
            return self.count

    def leaking():
        yield 1
        next(iter(()))

    assert flat(loader_of(driver, Counting())) == repeated([1, 2, 3])
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(loader_of(driver, leaking()))


# ---------------------------------------------------------------- worker processes


class Pictures(torch.utils.data.Dataset):
    """Item 6 raises, or kills the worker process that reads it."""

    def __init__(self, kill=False):
        self.kill = kill

    def __len__(self):
        return 12

    def __getitem__(self, index):
        if index == 6:
            if self.kill:
                os.kill(os.getpid(), signal.SIGKILL)
            raise Unreadable("h.png", 9)
        return index


@pytest.fixture
def quick_shutdown(monkeypatch):
    """Collect a failed DataLoader iterator here and now; it waits 5 s for each of its workers."""
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 0.1)
    yield
    gc.collect()


@pytest.mark.slow
@pytest.mark.usefixtures("quick_shutdown")
@pytest.mark.parametrize(("kill", "message"), [(False, r"h\.png"), (True, "worker")])
def test_error_in_a_data_loader_worker_or_its_death_reaches_the_consumer(kill, message):
    # Arrays, because they cross in one write: a tensor that is in transit when its worker dies is
    # an EOFError of PyTorch's.
    source = torch.utils.data.DataLoader(
        Pictures(kill), batch_size=2, num_workers=2, collate_fn=np.array
    )
    with (
        pyecho.EchoLoader(source, 2) as loader,
        pytest.raises((Unreadable, RuntimeError), match=message),
    ):
        for number, batch in enumerate(loader):
            assert batch.tolist() == [number // 2 * 2, number // 2 * 2 + 1]


# ---------------------------------------------------------------- use after close


@drivers
@levels
def test_closed_loader_says_so(driver, batch_size):
    loader = loader_of(driver, list(range(50)), batch_size=batch_size)
    ended, running, never = iter(loader), iter(loader), iter(loader)
    batches = sum(1 for _ in ended)
    next(running)
    loader.close()
    loader.close()
    for attempt in (lambda: next(running), lambda: next(never), lambda: iter(loader)):
        with pytest.raises(pyecho.Closed, match=r"^this EchoLoader is closed.*make a new one"):
            attempt()
    assert next(ended, "end") == "end"
    stats = loader.stats()
    assert (stats.batches, stats.outstanding_leases) == (batches + 1, 0)


def test_with_block_closes_and_lets_exceptions_through():
    with pytest.raises(ZeroDivisionError), pyecho.EchoLoader(range(3)) as loader:
        for _ in loader:
            raise ZeroDivisionError
    with pytest.raises(pyecho.Closed):
        list(loader)


@pytest.mark.parametrize("threads", [None, 0])
@pytest.mark.parametrize("augment", [None, lambda batch, rng: batch])
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda loader: loader.set_epoch(7), r"^a later iter\(\) or set_epoch\(\) of this loader"),
        (lambda loader: loader.close(), "^this EchoLoader is closed"),
    ],
    ids=["set_epoch", "close"],
)
def test_loader_that_its_own_source_ends_says_by_what(call, message, augment, threads):
    class EndsItsLoader:
        def __iter__(self):
            yield from range(3)
            call(loader)
            yield from range(100)

    loader = pyecho.EchoLoader(EndsItsLoader(), 1, augment=augment, threads=threads)
    with pytest.raises(pyecho.Closed, match=message):
        for _ in loader:
            pass


def test_state_before_an_error_reaches_the_consumer_has_it_as_its_cause():
    def items():
        yield from range(9)
        raise OSError("the disk is gone")

    loader = pyecho.EchoLoader(items(), 1, shuffle_buffer=4)
    next(iter(loader))
    wait_until(lambda: loader.stats().read == 9)
    with pytest.raises(pyecho.EchoError, match="is about to get") as raised:
        wait_until(lambda: loader.state_dict() is None)
    assert str(raised.value.__cause__) == "the disk is gone"
