"""Items that fail to pickle or unpickle raise an error, after all items before them."""

import multiprocessing
import os
import signal

import numpy as np
import pytest
from worked import Rows, plain

import pyecho
from pyecho.workers import start
from pyecho.workers.process import receive

FORMS = {"examples": {"batch_size": 8, "shuffle_buffer": 0}, "batch echoing": {"shuffle_buffer": 0}}
forms = pytest.mark.parametrize("options", FORMS.values(), ids=FORMS)
LOADER = os.getpid()


def fail_in_loader(error):
    if os.getpid() == LOADER:
        raise error
    return ValueError("in the worker")


class Unread(Exception):
    """Can be pickled, but not unpickled by the loader."""

    def __init__(self, error=None):
        super().__init__("unread")
        self.error = error or LookupError("unread")

    def __reduce__(self):
        return fail_in_loader, (self.error,)


class Unsent(Exception):
    """Cannot be pickled."""

    def __init__(self, error):
        super().__init__("unsent")
        self.error = error

    def __reduce__(self):
        raise self.error


def until_error(options, at=20, **more):
    """The indices of items before an exception, and the exception."""
    found = []
    with pyecho.EchoLoader(factor=1, num_workers=2, **options, **more) as loader:
        for _ in range(2):  # the workers are fit for use after an exception
            with pytest.raises(BaseException) as raised:  # noqa: PT011
                for batch in loader:
                    found += [plain(batch["index"])]
    flat = [index for each in found for index in (each if isinstance(each, list) else [each])]
    assert flat == [*range(at), *range(at)]
    return raised.value


class Items(Rows):
    """Has a leaf that is odd at one item, or raises it."""

    def __init__(self, odd, *, raises=False):
        super().__init__()
        self.odd, self.raises = odd, raises

    def __getitem__(self, index):
        if index == 20 and self.raises:
            raise self.odd
        return {"index": index, "leaf": self.odd if index == 20 else "text"}


@forms
@pytest.mark.parametrize("odd", [Unread, Unsent])
@pytest.mark.parametrize("error", [LookupError(), FileNotFoundError(), EOFError(), SystemExit(3)])
def test_item_that_cannot_be_sent_or_read_is_that_error(odd, error, options):
    raised = until_error(options | {"source": Items(odd(error))})
    assert isinstance(raised, type(error))


@forms
@pytest.mark.parametrize(
    "error", [Unread(), Unread(OSError()), Unsent(OSError()), Unsent(SystemExit(3))], ids=repr
)
def test_exception_that_cannot_be_sent_or_read_is_an_exception(error, options):
    raised = until_error(options | {"source": Items(error, raises=True)})
    assert isinstance(raised, LookupError | OSError | RuntimeError)
    assert not isinstance(raised, pyecho.WorkerError)


class Index:
    """Cannot be unpickled at 20."""

    def __init__(self, number):
        self.number = number

    def __index__(self):
        return self.number

    def __reduce__(self):
        return (Index, (self.number,)) if self.number != 20 else (int, ("no number",))


@forms
def test_index_that_cannot_be_read_is_an_error(options):
    class Indexed(Rows):
        def __getitem__(self, index):
            return super().__getitem__(int(index))

    options = options | {"source": Indexed(), "sampler": [Index(number) for number in range(30)]}
    raised = until_error(options)
    assert isinstance(raised, ValueError)
    assert "no number" in str(raised)


@forms
def test_index_that_cannot_be_sent_is_an_error(options):
    indices = [*range(20), lambda: 0, 21]
    raised = until_error(options | {"source": Rows(), "sampler": indices})
    assert "pickle" in str(raised)


def test_loader_that_has_no_memory_for_an_item_goes_on_in_the_next_epoch(monkeypatch):
    class Large:
        def __len__(self):
            return 20

        def __getitem__(self, index):
            return np.full(100_000, index)

    taken = iter(range(30))

    def received(*message):
        if next(taken) == 4:
            raise MemoryError
        return receive(*message)

    monkeypatch.setattr(start, "receive", received)
    loader = pyecho.EchoLoader(Large(), 1, num_workers=2, shuffle_buffer=0)
    with pytest.raises(MemoryError):
        list(loader)
    monkeypatch.undo()
    assert [int(item[0]) for item in loader] == list(range(20))


def test_worker_whose_answer_is_not_taken_is_killed_since_others_get_its_slots(monkeypatch):
    answers = []

    def received(*message):
        answers.append(receive(*message))
        if len(answers) == 2:
            raise MemoryError
        return answers[-1]

    monkeypatch.setattr(start, "receive", received)
    before = multiprocessing.active_children()
    with pyecho.EchoLoader(Rows(), 1, batch_size=2, num_workers=1) as loader:
        loader._source.prepare()
        [worker] = [each for each in multiprocessing.active_children() if each not in before]
        with pytest.raises(MemoryError):
            list(loader)
        worker.join(5)
        assert worker.exitcode == -signal.SIGKILL
