"""Epochs: each iter() is one, which begins with its first next() and ends an earlier one."""

import gc
import itertools
import warnings
from collections import Counter

import numpy as np
import pytest
from drivers import (
    Iterated,
    Sized,
    drivers,
    flat,
    levels,
    loader_of,
    pyecho_threads,
    repeated,
    waiting_drivers,
)

import pyecho

SHUFFLED = {"shuffle_buffer": 10}


def epoch_of(number, items=range(40), factor=2.5, **arguments):
    """Emissions of an epoch of a loader of its own."""
    loader = pyecho.EchoLoader(items, factor, **SHUFFLED, **arguments)
    loader.set_epoch(number)
    return flat(loader)


@waiting_drivers
def test_iterator_that_is_never_asked_costs_nothing(driver):
    source = Iterated(range(40))
    loader = loader_of(driver, source, **SHUFFLED)
    threads = set(pyecho_threads())  # of other tests, which may end meanwhile
    iterators = [iter(loader) for _ in range(3)]
    assert (source.passes, set(pyecho_threads()) - threads) == (0, set())
    del iterators
    assert (source.passes, set(pyecho_threads()) - threads) == (0, set())
    assert flat(loader) == epoch_of(0, factor=2)


@drivers
@levels
def test_later_iteration_ends_an_earlier_one_and_not_the_other_way_round(driver, batch_size):
    loader = loader_of(driver, range(40), 2, batch_size=batch_size, **SHUFFLED)
    one = iter(loader)
    next(one)
    other = iter(loader)
    next(one)  # goes on until the other one begins
    first = flat([next(other)])
    for _ in range(2):
        with pytest.raises(pyecho.Closed, match=r"a later iter\(\).*has ended this iteration"):
            next(one)
    del one
    gc.collect()
    assert first + flat(other) == epoch_of(1, factor=2)


# ---------------------------------------------------------------- epochs that flow


class Numbered(Iterated):
    """Other items in each pass: 100 * pass + number."""

    fails = None

    def __iter__(self):
        number, self.passes = self.passes, self.passes + 1
        for item in self.items:
            if (number, item) == self.fails:
                raise OSError("gone")
            yield 100 * number + item


def pass_of(number, items=40):
    return range(100 * number, 100 * number + items)


@waiting_drivers
@levels
@pytest.mark.parametrize("factor", [2, 2.25])
def test_passes_flow_into_each_other(driver, batch_size, factor):
    """Uses and their order are held to the model in tests/machine."""
    source = Numbered(range(41))
    loader = loader_of(driver, source, factor, batch_size=batch_size, epochs=3, **SHUFFLED)
    for number in range(3):
        emitted = []
        for batch in loader:
            emitted += flat([batch])
            begun = source.passes
        assert begun >= min(number + 2, 3), "begun before the last batch"
        assert bool(set(emitted) & set(pass_of(number + 1))) == (number < 2), "the pool is kept"
    assert set(flat(loader)) == set(pass_of(3, 41)), "passes after the last are on their own"


@waiting_drivers
@levels
def test_error_in_a_later_pass_comes_after_every_use_of_what_came_before(driver, batch_size):
    source = Numbered(range(40))
    source.fails = (1, 25)
    loader = loader_of(driver, source, 3, batch_size=batch_size, epochs=3, **SHUFFLED)
    emitted = flat(loader)
    assert len(emitted) == 120
    with pytest.raises(OSError, match="gone"):
        for batch in loader:
            emitted += flat([batch])
    assert Counter(emitted) == dict.fromkeys([*pass_of(0), *pass_of(1, 25)], 3)
    assert Counter(flat(loader)) == dict.fromkeys(pass_of(2), 3), "and the loader goes on"


# ---------------------------------------------------------------- iterators as sources


@waiting_drivers
@levels
def test_iteration_over_an_iterator_goes_on_with_a_warning(driver, batch_size):
    loader = loader_of(driver, iter(range(90)), 2, batch_size=batch_size, shuffle_buffer=0)
    emitted = []
    for number, count in enumerate((2, 1, 5)):
        batches = iter(loader)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(count):
                emitted += flat([next(batches)])
        assert len(caught) == (number > 0)
        for warning in caught:
            assert warning.filename == __file__
            assert "goes on where that one was left" in str(warning.message)
    assert emitted + flat(batches) == repeated(range(90))


@pytest.mark.parametrize("epochs", [None, 3])
@pytest.mark.parametrize(
    "source", [[], (), np.zeros((0, 3)), iter(()), {}.keys(), Iterated([])], ids=type
)
@levels
def test_source_that_yields_nothing_is_an_empty_epoch_with_a_warning(source, batch_size, epochs):
    loader = pyecho.EchoLoader(source, batch_size=batch_size, epochs=epochs)
    for _ in range(2):
        batches = iter(loader)
        with pytest.warns(
            RuntimeWarning, match=rf"{type(source).__name__}.*yielded nothing: check its length"
        ) as caught:
            assert next(batches, None) is None
        assert caught[0].filename == __file__
    assert loader.stats() == pyecho.EchoStats(source_seconds=loader.stats().source_seconds)


@waiting_drivers
def test_epoch_whose_one_batch_is_dropped_warns(driver):
    source = range(10) if driver == "in memory" else Sized(range(10))
    loader = loader_of(driver, source, batch_size=64, drop_last=True)
    batches = iter(loader)
    with pytest.warns(RuntimeWarning, match="10 items.*drop_last=False") as caught:
        assert next(batches, None) is None
    assert caught[0].filename == __file__


@waiting_drivers
@levels
def test_iterator_that_was_read_to_its_end_is_an_empty_epoch_with_a_warning(driver, batch_size):
    loader = loader_of(driver, iter(Iterated(range(8))), batch_size=batch_size)
    assert sorted(flat(loader)) == repeated(range(8))
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="yielded nothing: it is an iterator"):
            assert list(loader) == []
        assert loader.state_dict()["epoch"] == 1  # nothing has begun


@drivers
@levels
@pytest.mark.filterwarnings("ignore:the source .* yielded nothing")
def test_sources_may_be_empty_grow_and_shrink_from_epoch_to_epoch(driver, batch_size):
    items = []
    source = items if driver == "in memory" else Iterated(items)
    loader = loader_of(driver, source, 2, batch_size=batch_size, shuffle_buffer=8)
    for count in (0, 3, 40, 0, 2, 90):
        items[:] = range(count)
        assert Counter(flat(loader)) == dict.fromkeys(items, 2)


# ---------------------------------------------------------------- steps


@waiting_drivers
def test_steps_make_epochs_of_an_endless_source(driver):
    loader = loader_of(driver, itertools.count(), steps_per_epoch=10)
    assert len(loader) == 10
    for number in range(3):
        assert flat(loader) == repeated(range(5 * number, 5 * number + 5))


@drivers
def test_steps_of_a_source_that_has_become_empty_end(driver):
    items = list(range(3))

    class Ending(Iterated):
        def __iter__(self):
            yield from list(items)
            items.clear()

    loader = loader_of(driver, Ending([]), steps_per_epoch=4)
    assert [flat(loader) for _ in range(2)] == [[0, 0, 1, 1], [2, 2]]
