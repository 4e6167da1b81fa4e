"""A run ends where it should, and the rows of runs hold what was measured."""

from contextlib import closing

import pytest

pytest.importorskip("torch")
pytest.importorskip("PIL")
pytest.importorskip("matplotlib")

from pyecho.demo.images import read_folder
from pyecho.demo.report import summarize
from pyecho.demo.source import RemoteImages, ServerProcess
from pyecho.demo.train import BATCH_SIZE, SHUFFLE_BUFFER, Point, Run, Trainer, train_to_target

UPSTREAM_SECONDS = 0.06


@pytest.fixture
def train(image_folder):
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the demonstration does
    images = read_folder(image_folder)
    with (
        closing(ServerProcess(images.root)) as server,
        closing(RemoteImages(server.port, images.root, images.train, images.shape)) as source,
    ):
        yield lambda **options: train_to_target(Trainer(images), source, seed=1, **options)
    torch.set_num_threads(threads)


def test_training_stops_at_the_target(train):
    run = train(factor=2, target=0.01, max_steps=100)
    assert (run.reached, run.steps, len(run.curve)) == (True, 10, 1)
    assert run.seconds == run.curve[0].seconds > 0
    assert 0 < run.downstream_seconds < run.seconds


def test_target_out_of_reach_ends_after_the_allowed_steps_and_fresh_examples_are_counted(train):
    run = train(factor=2.5, target=2.0, max_steps=25)
    assert (run.reached, run.steps) == (False, 25)
    assert [point.step for point in run.curve] == [10, 20, 25]
    used = 25 * BATCH_SIZE / 2.5
    short_batches = 2 * BATCH_SIZE
    ahead = SHUFFLE_BUFFER + 8 * BATCH_SIZE
    assert used / 1.1 - short_batches <= run.fresh <= used * 1.1 + ahead


@pytest.fixture
def runs():
    """Three seeds without echoing, then three with e = 3."""
    return [
        Run(factor, seed, True, seconds, 40, int(100 * seconds), 0.01, [Point(seconds, 40, 0.96)])
        for factor, times in ((1, (10.0, 14.0, 12.0)), (3, (4.0, 5.0, 8.0)))
        for seed, seconds in enumerate(times, 1)
    ]


def test_rows_hold_medians_over_the_seeds_in_order_of_the_factor(runs):
    base, echoed = summarize(runs[::-1], UPSTREAM_SECONDS)
    assert (base.factor, echoed.factor) == (1, 3)
    assert (base.runs, base.reached) == (3, 3)
    assert (base.fresh, echoed.fresh) == (1200, 500)
    assert sorted(base.seconds.values) == [10.0, 12.0, 14.0]
    assert sorted(echoed.seconds.values) == [4.0, 5.0, 8.0]
    assert (base.speedup, echoed.speedup) == (1.0, 12.0 / 5.0)
    assert echoed.accuracy == 0.96
    assert (echoed.ratio, echoed.allowed) == (pytest.approx(6.0), pytest.approx(3.0))


def test_missed_target_is_counted_and_takes_the_medians_away(runs):
    runs[3].reached = False
    base, echoed = summarize(runs, UPSTREAM_SECONDS)
    assert (echoed.runs, echoed.reached) == (3, 2)
    assert echoed.seconds is echoed.fresh is echoed.steps is echoed.speedup is None
    assert base.speedup is not None
