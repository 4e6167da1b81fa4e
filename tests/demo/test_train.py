from contextlib import closing

import pytest

pytest.importorskip("torch")
pytest.importorskip("PIL")

import torch

from pyecho.demo.images import read_folder
from pyecho.demo.server_process import ServerProcess
from pyecho.demo.source import RemoteImages
from pyecho.demo.train import BATCH_SIZE, SHUFFLE_BUFFER, Trainer, train_to_target


@pytest.fixture
def images(image_folder):
    return read_folder(image_folder)


@pytest.fixture
def source(images):
    with (
        closing(ServerProcess(images.root)) as server,
        closing(
            RemoteImages(server.port, images.root, images.train, images.shape, seed=1)
        ) as source,
    ):
        yield source


def test_training_stops_at_the_target(images, source):
    run = train_to_target(Trainer(images), source, factor=2, seed=1, target=0.01, max_steps=100)
    assert run.reached
    assert run.steps == 10
    assert len(run.curve) == 1
    assert run.seconds == run.curve[0].seconds > 0
    assert 0 < run.downstream_seconds < run.seconds


def test_a_target_out_of_reach_ends_after_the_allowed_steps(images, source):
    run = train_to_target(Trainer(images), source, factor=1, seed=1, target=2.0, max_steps=25)
    assert not run.reached
    assert run.steps == 25
    assert [point.step for point in run.curve] == [10, 20, 25]


@pytest.mark.parametrize("factor", [1.0, 3.0, 2.5])
def test_fresh_examples_are_counted_across_epochs(images, source, factor):
    steps = 40
    run = train_to_target(
        Trainer(images), source, factor=factor, seed=1, target=2.0, max_steps=steps
    )
    used = steps * BATCH_SIZE / factor
    short_batches = 2 * BATCH_SIZE
    ahead = SHUFFLE_BUFFER + 8 * BATCH_SIZE
    assert used / 1.1 - short_batches <= run.fresh <= used * 1.1 + ahead


def test_observers_see_every_test(images, source):
    seen = []
    train_to_target(
        Trainer(images),
        source,
        factor=1,
        seed=1,
        target=2.0,
        max_steps=20,
        on_test=lambda run: seen.append(run.steps),
    )
    assert seen == [10, 20]


def test_the_seed_decides_the_initial_weights(images):
    trainer = Trainer(images)

    def weights(seed):
        trainer.start(seed)
        return torch.cat([parameter.flatten() for parameter in trainer._net.parameters()])

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))
