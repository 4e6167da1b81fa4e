"""advise() on loaders: what it runs, and what it refuses."""

import time

import numpy as np
import pytest
from drivers import drivers, flat, levels, loader_of

import pyecho
from pyecho.tools.advise.model import FACTORS


def paused(seconds):
    def step(batch, rng=None):
        time.sleep(seconds)
        return batch

    return step


@drivers
@levels
def test_advise_measures_every_loader_which_then_runs_as_before(driver, batch_size):
    expected = flat(loader_of(driver, range(30), 2, batch_size=batch_size))
    loader = loader_of(driver, range(30), 2, batch_size=batch_size)
    advice = loader.advise(lambda batch: None, steps=20)
    assert isinstance(advice, pyecho.Advice)
    assert (advice.factor, advice.steps) == (2, 20)
    assert tuple(each.factor for each in advice.predictions) == FACTORS
    assert all(each.steps_per_second > 0 for each in advice.predictions)
    assert loader.stats() == pyecho.EchoStats()
    assert flat(loader) == expected


@pytest.mark.parametrize(
    ("limit", "source_seconds", "step_seconds", "augment_seconds"),
    [("source", 0.02, 0, 0), ("consumer", 0, 0.01, 0), ("augmentation", 0, 0, 0.01)],
)
def test_the_limit_is_found(limit, source_seconds, step_seconds, augment_seconds):
    """One part is slow, and the others take next to no time."""

    class Slow:
        def __iter__(self):
            for number in range(10_000):
                time.sleep(source_seconds)
                yield np.full(4, number)

    augment = paused(augment_seconds) if augment_seconds else None
    loader = pyecho.EchoLoader(Slow(), 2, batch_size=2, augment=augment)
    assert loader.advise(paused(step_seconds), steps=8).limit == limit


def test_without_a_step_the_consumer_so_far_is_imitated():
    loader = pyecho.EchoLoader(range(20), 2)
    assert loader.advise(steps=20).times.downstream == 0
    for _ in loader:
        time.sleep(0.002)
    seconds = loader.stats().downstream_seconds / loader.stats().batches
    assert loader.advise(steps=20).times.downstream >= seconds


@pytest.mark.filterwarnings("ignore:.*yielded nothing")
@pytest.mark.parametrize("items", [0, 5])
def test_a_source_that_ends_too_soon_says_so(items):
    class Once:  # seems to be re-iterable, and is not
        def __init__(self):
            self.left = iter(range(items))

        def __iter__(self):
            return self.left

    with pytest.raises(pyecho.EchoError, match=f"ended after {items} batches, and advise"):
        pyecho.EchoLoader(Once(), 1).advise()


def test_an_iterator_is_refused_because_its_items_would_be_lost():
    items = iter(range(9))
    with pytest.raises(pyecho.ConfigError, match="would use up its items"):
        pyecho.EchoLoader(items, 1).advise()
    assert next(items) == 0


def test_advise_is_refused_while_an_iteration_or_a_trace_runs(tmp_path):
    loader = pyecho.EchoLoader(range(9), 2)
    batches = iter(loader)
    next(batches)
    with pytest.raises(pyecho.EchoError, match="before the first one, or after its end"):
        loader.advise()
    assert len(list(batches)) == 17
    with (
        loader.trace(tmp_path / "run.json"),
        pytest.raises(pyecho.EchoError, match="is being recorded already"),
    ):
        loader.advise()
