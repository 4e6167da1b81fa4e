"""An exception in the beginning of an epoch keeps the position: the next next() begins again."""

import contextlib
import copy
import gc
import itertools
import os
import random
from pathlib import Path

import numpy as np
import pytest
from drivers import DRIVERS, Iterated, Sized, flat, pyecho_threads, waiting_drivers
from interrupt_points import Interrupts
from interrupts import unraisable_interrupts_dropped
from pipelines import (
    ONE_SHOT,
    OWN_STATE,
    PIPELINES,
    WITH_ITEMS,
    epochs_of,
    loader_of,
    name_of,
    plain,
    whole,
)
from waiting import wait_until

import pyecho

STRESS = os.environ.get("PYECHO_STRESS", "") not in ("", "0")

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),
]


def leftovers():
    """Return the threads of loaders, and the descriptors."""
    gc.collect()
    return {thread.name for thread in pyecho_threads()}, len(list(Path("/proc/self/fd").iterdir()))


def assert_no_more_than(before):
    """Fail unless all that was begun ends; a thread reaps worker processes."""
    threads, files = before
    wait_until(lambda: leftovers()[1] <= files)
    found = leftovers()
    assert found[0] <= threads
    assert found[1] <= files


BEFORE = [(None, True), (3, False), (-1, True), (3, True), (-1, False)]
"""Batches taken before a state with or without items; None: no state."""


def paired(many, few):
    return zip(many, itertools.cycle(few), strict=False)


@pytest.mark.parametrize(
    ("pipeline", "before"),
    [*(itertools.product if STRESS else paired)(PIPELINES, BEFORE)],
    ids=lambda each: name_of(each) if isinstance(each[0], str) else str(each),
)
def test_epoch_begins_again_after_an_interrupt_at_any_point_of_its_beginning(pipeline, before):
    source, (taken_before, payload) = pipeline[0], before
    payload = payload or source in WITH_ITEMS
    read_again = source in ONE_SHOT and "threads" in pipeline[1] and taken_before is not None

    def begun(state, interrupts):
        """Return a loader, its iterator, and a batch unless that was interrupted."""
        loader, taken = loader_of(*pipeline), []
        if state is not None:
            loader.load_state_dict(state)
        iterator = iter(loader)
        interrupts.strikes(lambda: taken.extend(itertools.islice(iterator, 1)))
        return loader, iterator, taken

    def epochs(loader, iterator, taken):
        """Return what the consumer gets in all epochs, and close the loader."""
        with loader:
            others = (plain(each) for _ in range(epochs_of(source) - 1) for each in loader)
            return [*map(plain, taken), *map(plain, iterator), *others]

    begun_with, state = leftovers(), None
    if taken_before is not None:
        with loader_of(*pipeline) as loader:
            batches = len(whole(PIPELINES.index(pipeline))[0])
            for _ in itertools.islice(loader, taken_before % (batches + 1)):
                pass
            state = loader.state_dict(payload=payload)
    expected = epochs(*begun(state, counted := Interrupts()))
    points = range(1, counted.reached + 1)
    for at in points if STRESS else random.Random(name_of(pipeline)).sample(points, 2):
        kept = None
        with unraisable_interrupts_dropped():
            loader, iterator, taken = begun(state, Interrupts(at))
        if source in OWN_STATE and not taken and loader._run.epochs.reading is not None:
            with pytest.raises(pyecho.EchoError, match="take the state after the next batch"):
                loader.state_dict()
        elif not taken:
            kept = copy.deepcopy(loader.state_dict())  # batches in it would stay the inner loader's
        with contextlib.suppress(*[pyecho.CheckpointError] * read_again):  # it cannot be once more
            assert epochs(loader, iterator, taken) == expected, at
        if kept is not None and kept["epoch"] == 0:  # the end was not reached
            assert epochs(*begun(kept, Interrupts())) == expected, at
    del loader, iterator
    assert_no_more_than(begun_with)


def test_state_after_an_interrupt_between_the_last_batch_and_the_end_is_the_next_epoch():
    pipeline = next(each for each in PIPELINES if each[0] == "stateful" and "batch_size" in each[1])
    epochs = whole(PIPELINES.index(pipeline))
    loader = loader_of(*pipeline)
    for _ in itertools.islice(loader, len(epochs[0])):
        pass
    state = loader.state_dict()
    assert state["epoch"] == 0, "its length is not known"
    loader = loader_of(*pipeline)
    loader.load_state_dict(state)
    loader._run._begin(object())  # Ctrl-C comes before the iterator finds the end
    other = loader_of(*pipeline)
    other.load_state_dict(loader.state_dict())
    assert list(map(plain, other)) == epochs[1]


class Faulty(Iterated):
    """Raises an error, or yields an odd item, at one place as often as it is told."""

    def __init__(self, items, where):
        super().__init__(items)
        self.where, self.faults, self.error = where, 2, OSError("the disk is gone")

    def fails(self, where):
        fails = self.faults > 0 and where == self.where
        self.faults -= fails
        return fails

    def set_epoch(self, epoch):
        if self.fails("set_epoch"):
            raise self.error

    def __iter__(self):
        if self.fails("iter"):
            raise self.error
        return self.read()

    def read(self):
        if self.fails("item"):
            raise self.error
        if self.fails("odd item"):
            yield np.zeros(2**20)  # more than max_bytes holds
        yield from self.items


@waiting_drivers
@pytest.mark.parametrize("where", ["set_epoch", "iter", "item", "odd item"])
def test_error_in_a_beginning_reaches_the_consumer_and_the_next_call_begins_again(driver, where):
    source = Faulty(range(9), where)
    loader = pyecho.EchoLoader(source, 2, shuffle_buffer=4, max_bytes=2**18, **DRIVERS[driver])
    batches = iter(loader)
    for _ in range(2):
        with pytest.raises((OSError, pyecho.ConfigError)) as raised:
            next(batches)
        assert where == "odd item" or raised.value is source.error
        assert loader.state_dict()["epoch"] == 0
    untouched = pyecho.EchoLoader(range(9), 2, shuffle_buffer=4)
    assert [flat(batches), flat(loader)] == [flat(untouched), flat(untouched)]


@waiting_drivers
def test_warning_as_an_error_in_a_beginning_keeps_the_position(driver):
    source = Sized([])
    loader = pyecho.EchoLoader(source, 2, shuffle_buffer=4, **DRIVERS[driver])
    batches = iter(loader)
    for _ in range(2):
        with pytest.raises(RuntimeWarning, match="yielded nothing"):
            next(batches)
    source.items = range(9)
    assert flat(batches) == flat(pyecho.EchoLoader(range(9), 2, shuffle_buffer=4))
