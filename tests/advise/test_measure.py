"""advise() on loaders: what it runs, and what it refuses."""

import itertools
import multiprocessing
import os
import re
import threading
import time

import numpy as np
import pytest
from drivers import drivers, flat, levels, loader_of
from interrupts import interrupted
from learners import observed
from torch.utils.data import DataLoader
from waiting import wait_until

import pyecho
from pyecho.tools.advise import measure
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
    ("limit", "source_seconds", "step_seconds", "options"),
    [
        ("source", 0.02, 0, {}),
        ("consumer", 0, 0.01, {}),
        ("augmentation", 0, 0, {"augment": paused(0.01)}),
        ("augmentation", 0, 0, {"augment_example": paused(0.005)}),
        ("augmentation", 0, 0, {"collate_fn": paused(0.01)}),
    ],
)
def test_limit_is_found(limit, source_seconds, step_seconds, options):
    """One part is slow, and the others take next to no time."""

    class Slow:
        def __iter__(self):
            for number in range(10_000):
                time.sleep(source_seconds)
                yield np.full(4, number)

    loader = pyecho.EchoLoader(Slow(), 2, batch_size=2, **options)
    advice = loader.advise(paused(step_seconds), steps=8)
    assert advice.limit == limit


def loader_with_info():
    items = np.random.default_rng(0).normal(size=4000)
    return pyecho.EchoLoader(items, 2, batch_size=4, with_info=True)


def test_worth_forgets_what_the_step_observes():
    worth = pyecho.Worth()
    loader = loader_with_info()
    for batch, info in itertools.islice(loader, 10):
        worth.observe(batch**2, info)
    loader.set_epoch(0)
    before, batches = worth.state_dict(), []

    def step(pair):
        batch, info = pair
        worth.observe(batch**2, info)
        batches.append(worth.state_dict()["batches"])

    loader.advise(step, steps=100, worth=worth)
    assert len(batches) > 100
    assert batches[0] == 1
    assert worth.state_dict() == before


def test_advice_goes_by_the_worth_that_is_passed(monkeypatch):
    known, seen = observed([0.0] * 3), []
    monkeypatch.setattr(measure, "advice_on", lambda *given: seen.append(given[-1]))
    loader_with_info().advise(paused(0.001), steps=20, worth=known)
    assert seen[0].worth[1] == known.estimate().effective(2)


class Waiting:
    """A slow map-style dataset; its second and later items never come to a worker process."""

    hangs = False

    def __init__(self):
        self.process = os.getpid()

    def __len__(self):
        return 10**6

    def __getitem__(self, index):
        if self.hangs and index and os.getpid() != self.process:
            time.sleep(1000)
        time.sleep(0.005)
        return np.zeros(1000, np.float32)

    __iter__ = None


def kinds(advice):
    return [each.kind for each in advice.remedies]


@pytest.mark.slow
def test_slow_dataset_is_measured_with_workers_and_kept_where_there_is_room(monkeypatch):
    loader = pyecho.EchoLoader(Waiting(), 1, batch_size=2)
    assert set(loader.advise(paused(1e-3), steps=8).facts.workers) == {1, 2}
    halved = lambda loader, upstream, run: {1: upstream, 2: upstream / 2}  # noqa: E731
    monkeypatch.setattr(measure, "times_of_workers", halved)  # whatever else the machine does
    advice = loader.advise(paused(1e-3), steps=8)
    assert kinds(advice)[:2] == ["memory", "workers"]  # 4 GB
    assert "1,000,000 take 4 GB" in str(advice)
    assert kinds(loader.advise(paused(1e-3), steps=8, epochs=1)) == ["workers", "echo"]


@pytest.mark.slow
def test_workers_of_a_data_loader_are_doubled():
    source = DataLoader(Waiting(), batch_size=2, num_workers=1)
    advice = pyecho.EchoLoader(source, 1).advise(paused(1e-3), steps=8)
    assert set(advice.facts.workers) == {1, 2}
    assert re.search(r"num_workers=\d+ of the DataLoader", str(advice))
    assert source.num_workers == 1


@pytest.mark.slow
def test_workers_that_hang_are_given_up(monkeypatch):
    monkeypatch.setattr(measure, "WORKERS_SECONDS", 0.5)
    children = {*multiprocessing.active_children()}  # of other tests
    source = Waiting()
    source.hangs = True
    advice = pyecho.EchoLoader(source, 1, batch_size=2).advise(paused(1e-3), steps=8)
    assert advice.facts.workers == {}
    assert "not measured: 1 of them took too long" in str(advice)
    assert wait_until(lambda: not {*multiprocessing.active_children()} - children)


@pytest.mark.slow
def test_dataset_that_cannot_go_to_workers_says_why():
    source = Waiting()
    source.local = lambda: None
    loader = pyecho.EchoLoader(source, 1, batch_size=2, multiprocessing_context="spawn")
    assert "not measured: " in str(loader.advise(paused(1e-3), steps=8))


@pytest.mark.slow
def test_interrupted_advise_leaves_nothing_behind(monkeypatch):
    children = {*multiprocessing.active_children()}  # of other tests
    before_workers, times = threading.Event(), measure.times_of_workers
    monkeypatch.setattr(
        measure, "times_of_workers", lambda *given: (before_workers.set(), times(*given))[1]
    )
    source = Waiting()
    loader = pyecho.EchoLoader(source, 1, batch_size=2)
    source.hangs = True
    interrupted(lambda: loader.advise(paused(1e-3), steps=8), before_workers)
    assert wait_until(lambda: not {*multiprocessing.active_children()} - children)
    assert len(list(itertools.islice(loader, 3))) == 3


def test_advise_without_a_step_imitates_the_consumer_so_far():
    loader = pyecho.EchoLoader(range(20), 2)
    assert loader.advise(steps=20).times.downstream == 0
    for _ in loader:
        time.sleep(0.002)
    seconds = loader.stats().downstream_seconds / loader.stats().batches
    assert loader.advise(steps=20).times.downstream >= seconds


@pytest.mark.filterwarnings("ignore:.*yielded nothing")
@pytest.mark.parametrize("items", [0, 5])
def test_source_that_ends_too_soon_says_so(items):
    class Once:  # seems to be re-iterable, and is not
        def __init__(self):
            self.left = iter(range(items))

        def __iter__(self):
            return self.left

    with pytest.raises(pyecho.EchoError, match=f"ended after {items} batches, and advise"):
        pyecho.EchoLoader(Once(), 1).advise()


def test_few_steps_are_enough_if_no_more_are_asked_for():
    assert pyecho.EchoLoader(range(30), 2).advise(lambda batch: None, steps=1).steps == 1


def test_generator_shorter_than_the_run_is_no_fast_source():
    """After its last item only the pool is left, which has the speed of memory."""

    def made():
        def items():
            for number in range(100):
                time.sleep(1e-3)
                yield np.full(4, number)

        return pyecho.EchoLoader(items(), 1, batch_size=4, shuffle_buffer=60), paused(1e-4)

    needs = r"\(generator\) ended after 100 items.*126 batches needs 564; .*smaller steps="
    with pytest.raises(pyecho.EchoError, match=needs):
        measure.measured_advice(made, 100)
    assert measure.measured_advice(made, 8).times.upstream > 3e-3


@pytest.mark.filterwarnings("error::ResourceWarning")
def test_loader_of_a_loader_gets_advice_without_a_warning():
    inner = pyecho.EchoLoader([np.full(4, number) for number in range(4000)], 1, batch_size=2)
    outer = pyecho.EchoLoader(inner, 2)
    assert isinstance(outer.advise(paused(1e-4), steps=50), pyecho.Advice)


def test_iterator_is_refused_because_its_items_would_be_lost():
    items = iter(range(9))
    with pytest.raises(pyecho.ConfigError, match="would use up its items"):
        pyecho.EchoLoader(items, 1).advise()
    assert next(items) == 0


def test_advise_needs_a_worth_and_not_its_estimate():
    with pytest.raises(pyecho.ConfigError, match=r"worth=pyecho\.Worth\(\), got WorthEstimate"):
        pyecho.EchoLoader(range(9), 2).advise(worth=pyecho.Worth().estimate())


def test_advise_is_refused_while_an_iteration_or_a_trace_runs(tmp_path):
    loader = pyecho.EchoLoader(range(9), 2)
    batches = iter(loader)
    next(batches)
    with pytest.raises(pyecho.EchoError, match="before the first one, or after its end"):
        loader.advise()
    assert len(list(batches)) == 17
    with (
        pyecho.trace(tmp_path / "run.json"),
        pytest.raises(pyecho.EchoError, match="is being recorded already"),
    ):
        loader.advise()
