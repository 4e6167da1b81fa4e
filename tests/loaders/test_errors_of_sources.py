"""A source that fails: its exception reaches the consumer, after every use of what came before."""

import gc
import threading
import traceback

import numpy as np
import pytest

import pyecho

torch = pytest.importorskip("torch")


class Unreadable(Exception):
    def __init__(self, path, code):
        super().__init__(path, code)
        self.path = path


def failing_source(items, error):
    yield from items
    raise error


@pytest.mark.parametrize("shuffle_buffer", [0, 4, 100])
@pytest.mark.parametrize("augment", [None, lambda batch, rng: batch])
@pytest.mark.parametrize(
    "error",
    [
        Unreadable("a.png", 7),
        OSError(5, "io"),
        MemoryError("big"),
        BaseException("odd"),
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit("early"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_batch_echoing_delivers_everything_then_the_same_exception(error, shuffle_buffer, augment):
    loader = pyecho.EchoLoader(
        failing_source(range(9), error), 3, shuffle_buffer=shuffle_buffer, augment=augment
    )
    emitted = []
    with pytest.raises(type(error)) as raised:
        emitted.extend(loader)
    assert raised.value is error
    # list.extend has taken them one by one before the exception came
    assert sorted(emitted) == sorted(list(range(9)) * 3)


@pytest.mark.parametrize("shuffle_buffer", [0, 4, 100])
@pytest.mark.parametrize("threads", [1, 3])
def test_example_echoing_delivers_everything_then_the_same_exception(shuffle_buffer, threads):
    error = Unreadable("b.png", 8)
    loader = pyecho.EchoLoader(
        failing_source(range(9), error),
        3,
        batch_size=4,
        threads=threads,
        shuffle_buffer=shuffle_buffer,
    )
    emitted = []
    with pytest.raises(Unreadable) as raised:  # noqa: PT012
        for batch in loader:
            emitted += batch.tolist()
    assert raised.value is error
    assert sorted(emitted) == sorted(list(range(9)) * 3), "the last batch is short"


def test_the_traceback_leads_into_the_source():
    with pytest.raises(Unreadable) as raised:
        list(pyecho.EchoLoader(failing_source([1], Unreadable("c", 1)), 2))
    assert "in failing_source" in "".join(traceback.format_exception(raised.value))
    assert raised.value.path == "c"


def test_an_error_at_the_first_item_comes_from_iter():
    error = Unreadable("d", 1)
    with pytest.raises(Unreadable) as raised:
        iter(pyecho.EchoLoader(failing_source([], error)))
    assert raised.value is error


def test_cause_context_and_notes_survive():
    def source():
        yield 1
        try:
            raise KeyError("inner")
        except KeyError as inner:
            raise ValueError("outer") from inner

    with pytest.raises(ValueError, match="outer") as raised:
        list(pyecho.EchoLoader(source()))
    assert isinstance(raised.value.__cause__, KeyError)


def test_after_the_error_the_iterator_is_exhausted():
    uses = iter(pyecho.EchoLoader(failing_source([1], Unreadable("e", 1)), 1))
    assert next(uses) == 1
    with pytest.raises(Unreadable):
        next(uses)
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(uses)


def test_the_error_does_not_end_the_loader():
    class Flaky:
        failures = 1

        def __iter__(self):
            yield from range(3)
            if self.failures:
                self.failures -= 1
                raise Unreadable("f", 1)

    loader = pyecho.EchoLoader(Flaky(), 2)
    with pytest.raises(Unreadable):
        list(loader)
    assert len(list(loader)) == 6


def test_an_iter_that_fails_raises_as_itself():
    class Broken:
        def __iter__(self):
            raise Unreadable("g", 1)

    with pytest.raises(Unreadable):
        iter(pyecho.EchoLoader(Broken()))


def test_stop_iteration_inside_a_source_is_its_end():
    class Source:
        count = 0

        def __iter__(self):
            return self

        def __next__(self):
            self.count += 1
            if self.count > 3:
                raise StopIteration
            return self.count

    assert list(pyecho.EchoLoader(Source(), 2)) == [1, 1, 2, 2, 3, 3]


def test_a_generator_that_leaks_stop_iteration_fails_with_runtime_error():
    def source():
        yield 1
        next(iter(()))

    with pytest.raises(RuntimeError, match="StopIteration"):
        list(pyecho.EchoLoader(source()))


class Failing(torch.utils.data.Dataset):
    """Item 6 raises, or kills the worker process that reads it."""

    def __init__(self, kill=False):
        self.kill = kill

    def __len__(self):
        return 12

    def __getitem__(self, index):
        if index == 6:
            if self.kill:
                import os
                import signal

                os.kill(os.getpid(), signal.SIGKILL)
            raise Unreadable("h.png", 9)
        return index


@pytest.fixture
def quick_shutdown(monkeypatch):
    """Collect a failed DataLoader iterator here and now; it waits 5 s for each of its workers."""
    yield
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 0.1)
    for thread in threading.enumerate():
        if thread.name.startswith("pyecho"):
            thread.join(60)
    gc.collect()


@pytest.mark.usefixtures("quick_shutdown")
@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_in_a_data_loader_worker_reaches_the_consumer(workers):
    source = torch.utils.data.DataLoader(Failing(), batch_size=2, num_workers=workers)
    emitted = []
    with pytest.raises((Unreadable, RuntimeError)) as raised:
        emitted.extend(pyecho.EchoLoader(source, 2))
    assert "h.png" in str(raised.value)
    assert [batch.tolist() for batch in emitted[::2]] == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.usefixtures("quick_shutdown")
@pytest.mark.parametrize("batch_size", [None, 4])
def test_a_killed_data_loader_worker_is_an_error_not_a_hang(batch_size):
    # Arrays, because they cross in one write: a tensor that is in transit when its worker dies is
    # an EOFError of PyTorch's.
    source = torch.utils.data.DataLoader(
        Failing(kill=True), batch_size=2, num_workers=2, collate_fn=np.array
    )
    with pytest.raises(RuntimeError, match="worker"):
        for _ in pyecho.EchoLoader(
            source, 2, batch_size=batch_size, unbatch=batch_size is not None
        ):
            pass


# ---------------------------------------------------------------- use after close


@pytest.mark.parametrize("batch_size", [None, 2])
def test_a_closed_loader_says_so(batch_size):
    loader = pyecho.EchoLoader(np.arange(5), batch_size=batch_size)
    running = iter(loader)
    next(running)
    loader.close()
    loader.close()
    with pytest.raises(pyecho.Closed, match=r"closed.*make a new one"):
        next(running)
    with pytest.raises(pyecho.Closed, match=r"closed.*make a new one"):
        iter(loader)
    assert loader.stats().emitted >= 1


def test_leaving_the_with_block_closes():
    with pyecho.EchoLoader(range(3)) as loader:
        assert len(list(loader)) == 6
    with pytest.raises(pyecho.Closed):
        list(loader)


def test_an_exception_in_the_with_block_passes_through():
    with pytest.raises(ZeroDivisionError), pyecho.EchoLoader(range(3)) as loader:  # noqa: PT012
        for _ in loader:
            raise ZeroDivisionError


def test_an_iterator_that_had_ended_stays_ended_when_its_loader_is_closed():
    loader = pyecho.EchoLoader(range(3))
    uses = iter(loader)
    list(uses)
    assert next(uses, "end") == "end"
    loader.close()
    assert next(uses, "end") == "end"
