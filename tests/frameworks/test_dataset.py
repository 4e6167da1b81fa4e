"""`as_dataset()`: an EchoLoader inside a DataLoader. Needs PyTorch; torchdata for one test."""

import pickle

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from pyecho.torch import EchoLoader

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # one core


def make_loader(**options):
    return EchoLoader(torch.arange(40), 2, batch_size=8, **options)


def batches_of(loader):
    return [batch.tolist() for batch in loader]


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_epochs_are_those_of_the_loader_for_any_number_of_workers(workers, persistent):
    expected = make_loader()
    options = {"num_workers": workers, "persistent_workers": persistent and workers > 0}
    loader = DataLoader(make_loader().as_dataset(), batch_size=None, **options)
    assert len(loader) == 10
    for _ in range(3):
        assert batches_of(loader) == batches_of(expected)


@pytest.mark.parametrize("options", [{"epochs": 3}, {"steps_per_epoch": 3}])
def test_epochs_flow_in_a_worker_that_persists(options):
    expected = make_loader(**options)
    dataset = make_loader(**options).as_dataset()
    loader = DataLoader(dataset, batch_size=None, num_workers=1, persistent_workers=True)
    for _ in range(3):
        assert batches_of(loader) == batches_of(expected)


def test_dataset_survives_pickling():
    dataset = pickle.loads(pickle.dumps(make_loader().as_dataset()))
    assert batches_of(DataLoader(dataset, batch_size=None)) == batches_of(make_loader())


@pytest.mark.parametrize("workers", [0, 1])
def test_set_epoch_chooses_the_epoch_of_workers_too(workers):
    expected = make_loader()
    expected.set_epoch(5)
    dataset = make_loader().as_dataset()
    dataset.set_epoch(5)
    loader = DataLoader(dataset, batch_size=None, num_workers=workers)
    for _ in range(2):
        assert batches_of(loader) == batches_of(expected)


def test_data_loader_of_workers_may_read_inside():
    source = DataLoader(TensorDataset(torch.arange(40)), batch_size=10)
    echoed = EchoLoader(source, 2, batch_size=8, unbatch=True)
    seen = [
        row for (batch,) in DataLoader(echoed.as_dataset(), None, num_workers=2) for row in batch
    ]
    assert sorted(map(int, seen)) == sorted([*range(40)] * 2)


@pytest.mark.parametrize("workers", [0, 1])
def test_data_loader_of_the_loader_itself_says_what_to_write(workers):
    with pytest.raises(TypeError, match=r"as_dataset\(\), batch_size=None"):
        next(iter(DataLoader(make_loader(), num_workers=workers)))


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # importing it warns
@pytest.mark.parametrize("workers", [0, 2])
def test_torchdata_saves_and_loads_it(workers):
    module = pytest.importorskip("torchdata.stateful_dataloader")

    def make():
        dataset = make_loader().as_dataset()
        return module.StatefulDataLoader(dataset, batch_size=None, num_workers=workers)

    loader = make()
    batches = iter(loader)
    for _ in range(4):
        next(batches)
    state = loader.state_dict()
    rest = [batch.tolist() for batch in batches]
    resumed = make()
    resumed.load_state_dict(state)
    assert batches_of(resumed) == rest
    assert batches_of(resumed) == batches_of(loader)


def test_loader_tells_what_a_data_loader_tells_and_refuses_what_it_refuses():
    dataset = list(range(6))
    source = DataLoader(dataset, batch_size=2)
    assert EchoLoader(source).batch_size == 2
    loader = EchoLoader(source, batch_size=3, unbatch=True)
    assert (loader.batch_size, loader.dataset) == (3, dataset)
    for name in ("batch_size", "batch_sampler", "dataset", "drop_last", "sampler"):
        with pytest.raises(ValueError, match=name):
            setattr(loader, name, None)
