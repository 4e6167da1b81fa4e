from contextlib import closing

import pytest

pytest.importorskip("torch")
pytest.importorskip("PIL")


from pyecho.demo.images import read_folder
from pyecho.demo.server_process import ServerProcess
from pyecho.demo.source import RemoteImages
from pyecho.demo.train import BATCH_SIZE, SHUFFLE_BUFFER, Trainer, train_to_target


@pytest.fixture
def images(image_folder):
    return read_folder(image_folder)


@pytest.fixture
def train(images):
    with (
        closing(ServerProcess(images.root)) as server,
        closing(
            RemoteImages(server.port, images.root, images.train, images.shape, seed=1)
        ) as source,
    ):
        yield lambda **options: train_to_target(Trainer(images), source, seed=1, **options)


def test_training_stops_at_the_target(train):
    run = train(factor=2, target=0.01, max_steps=100)
    assert (run.reached, run.steps, len(run.curve)) == (True, 10, 1)
    assert run.seconds == run.curve[0].seconds > 0
    assert 0 < run.downstream_seconds < run.seconds


def test_target_out_of_reach_ends_after_the_allowed_steps_and_every_test_is_seen(train):
    seen = []
    run = train(factor=1, target=2.0, max_steps=25, on_test=lambda run: seen.append(run.steps))
    assert (run.reached, run.steps) == (False, 25)
    assert [point.step for point in run.curve] == seen == [10, 20, 25]


@pytest.mark.parametrize("factor", [1.0, 2.5])
def test_fresh_examples_are_counted_across_epochs(train, factor):
    run = train(factor=factor, target=2.0, max_steps=40)
    used = 40 * BATCH_SIZE / factor
    short_batches = 2 * BATCH_SIZE
    ahead = SHUFFLE_BUFFER + 8 * BATCH_SIZE
    assert used / 1.1 - short_batches <= run.fresh <= used * 1.1 + ahead
