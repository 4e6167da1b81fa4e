"""DataLoaders whose samplers, datasets or ways to iterate are the user's: exact, or an error."""

import pickle
import random
from itertools import islice

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler

import pyecho
import pyecho.torch

ITEMS = 120


class SamplerReader:
    """A sampler that draws from a global generator, as users write them."""

    def __init__(self, permutation):
        self.permutation = permutation

    def __len__(self):
        return ITEMS

    def __iter__(self):
        yield from self.permutation(ITEMS)


def by_torch(count):
    return torch.randperm(count).tolist()


def by_torch_later(count):
    places = list(range(count))
    while places:
        yield places.pop(int(torch.randint(len(places), ())))


def by_python(count):
    return random.sample(range(count), count)


def by_numpy(count):
    return np.random.permutation(count).tolist()


def over_sampler(permutation, **more):
    return DataLoader(torch.arange(ITEMS), batch_size=5, sampler=SamplerReader(permutation), **more)


def over_batches(permutation, **more):
    batches = BatchSampler(SamplerReader(permutation), 5, False)
    return DataLoader(torch.arange(ITEMS), batch_sampler=batches, **more)


def over_single(permutation, **more):
    return DataLoader(
        torch.arange(ITEMS), batch_size=None, sampler=SamplerReader(permutation), **more
    )


class Buffered(IterableDataset):
    def __init__(self, permutation):
        self.permutation = permutation

    def __iter__(self):
        return iter(self.permutation(ITEMS))


def over_iterable(permutation, **more):
    return DataLoader(Buffered(permutation), batch_size=5, **more)


class OwnWay(DataLoader):
    def __iter__(self):
        yield from super().__iter__()


def over_own_way(permutation, **more):
    return OwnWay(torch.arange(ITEMS), batch_size=5, sampler=SamplerReader(permutation), **more)


def seed_all(seed):
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def state_after(make, seed, stop, payload):
    seed_all(seed)
    with make() as loader:
        batches = iter(loader)
        for _ in range(stop):
            next(batches)
        state = pickle.loads(pickle.dumps(loader.state_dict(payload=payload)))
        return state, [batch.tolist() for batch in batches]


def rest_of(make, seed, state):
    seed_all(seed)
    with make() as loader:
        loader.load_state_dict(state)
        return [batch.tolist() for batch in loader]


def echoed(source, permutation, **more):
    unbatch = source is not over_single
    return lambda: pyecho.torch.EchoLoader(
        source(permutation, **more), 2, batch_size=4, unbatch=unbatch, shuffle_buffer=8
    )


@pytest.mark.parametrize("payload", [True, False])
@pytest.mark.parametrize(
    ("source", "permutations"),
    [
        (over_sampler, [by_python, by_numpy]),
        (over_batches, [by_python, by_numpy]),
        (over_single, [by_python]),
        (over_iterable, [by_torch, by_python]),
        (over_own_way, [by_torch, by_torch_later, by_numpy]),
    ],
)
def test_other_orders_are_an_error_with_another_seed_and_exact_with_the_same(
    source, permutations, payload
):
    for permutation in permutations:
        make = echoed(source, permutation)
        state, rest = state_after(make, 1, 30, payload)
        owned_one = source not in (over_own_way, over_iterable)  # others' loaders draw as well
        if owned_one and payload:  # else a pass may be drawn twice
            assert rest_of(make, 1, state) == rest
        with pytest.raises(pyecho.CheckpointError, match="not the same in every process"):
            rest_of(make, 2, state)


class SeedsItself(RandomSampler):
    """Seeds its generator in every pass by a seed of the process, as Accelerate's sampler does."""

    def __init__(self, items):
        super().__init__(items)
        self.initial_seed = torch.initial_seed()
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        self.generator = torch.Generator().manual_seed(self.initial_seed + self.epoch)
        yield from super().__iter__()


@pytest.mark.parametrize("payload", [True, False])
@pytest.mark.parametrize("stop", [0, 7, 60, 100])
def test_sampler_that_seeds_itself_resumes_exactly_in_all_epochs(stop, payload):
    def run(seed, stop, state=None):
        seed_all(seed)
        source = DataLoader(torch.arange(ITEMS), 5, sampler=SeedsItself(range(ITEMS)))
        options = {"batch_size": 4, "unbatch": True, "shuffle_buffer": 8}
        with pyecho.torch.EchoLoader(source, 2, **options) as loader:
            if state is not None:
                loader.load_state_dict(state)
            taken = []
            while len(taken) < stop:
                taken += [batch.tolist() for batch in islice(loader, stop - len(taken))]
            return taken, loader.state_dict(payload=payload)

    whole, _ = run(1, 200)
    first, state = run(1, stop)
    second, state = run(2, 30, state)
    third, _ = run(3, 170 - stop, state)
    assert first + second + third == whole


def test_drawing_leaves_the_global_generators_alone():
    make = echoed(over_sampler, by_torch_later)
    seed_all(1)
    with make() as loader:
        batches = iter(loader)
        next(batches)
        before = torch.get_rng_state()
        for batch in batches:
            del batch
        assert torch.equal(torch.get_rng_state(), before)
