"""Grain: datasets with and without indices, and its DataLoader with worker processes."""

import pytest

grain = pytest.importorskip("grain")

from ecosystem import check_epochs, check_states, example

import pyecho


def dataset():
    return grain.MapDataset.range(40).map(example)


def echoed(source, **options):
    return pyecho.EchoLoader(source, 2, batch_size=8, **options)


def test_map_dataset():
    assert len(echoed(dataset())) == 10
    check_epochs(lambda: echoed(dataset().shuffle(seed=1)), range(40))
    check_states(lambda: echoed(dataset()))


def test_iter_dataset():
    check_epochs(lambda: echoed(dataset().to_iter_dataset()), range(40))
    check_states(lambda: echoed(dataset().to_iter_dataset()))


def test_batches_of_an_iter_dataset():
    source = dataset().to_iter_dataset().batch(5)
    check_epochs(lambda: echoed(source, unbatch=True), range(40))


@pytest.mark.parametrize("workers", [0, 1])
def test_data_loader(workers):
    def loader():
        source = grain.DataLoader(
            data_source=list(map(example, range(40))),
            sampler=grain.samplers.IndexSampler(40, num_epochs=1, seed=1, shuffle=True),
            operations=[grain.transforms.Batch(5)],
            worker_count=workers,
        )
        return echoed(source, unbatch=True)

    check_epochs(loader, range(40), keeps=["Thread-"])  # of its pool, which ends with the process
    check_states(loader)
