"""`shuffle=` and `sampler=`: every item once an epoch, in an order that (seed, epoch) selects."""

import collections
import itertools
import math

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from worked import Batches, Rows, emitted, plain
from worlds import loader_of, run_world

import pyecho
import pyecho.torch
from pyecho import ConfigError, EchoError

ITEMS = 60
COLUMN = np.arange(ITEMS, dtype=np.int32)
SOURCES = {
    "dataset": Rows(),
    "list": list(range(ITEMS)),
    "array": COLUMN,
    "wide array": np.repeat(COLUMN[:, None], 5000, axis=1),
    "columns": (COLUMN, list(range(ITEMS))),
    "tensor": torch.from_numpy(COLUMN),
}


def indices(batches):
    """The index of each example, in order."""
    found = []
    for batch in batches:
        value = batch["index"] if isinstance(batch, dict) else batch
        value = value[0] if isinstance(value, tuple | list) else value
        found += np.asarray(value).reshape(len(value), -1)[:, 0].tolist()
    return found


def order_of(source, epochs=1, **options):
    """Return the indices that are read in each epoch."""
    loader = pyecho.EchoLoader(source, 1, batch_size=4, shuffle_buffer=0, **options)
    return [indices(loader) for _ in range(epochs)]


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_shuffle_reads_every_item_once_in_another_order_each_epoch(source):
    epochs = order_of(source, 3, shuffle=True)
    assert all(sorted(each) == list(range(ITEMS)) for each in epochs)
    assert len(set(map(tuple, [*epochs, range(ITEMS)]))) == 4
    assert (
        epochs == order_of(source, 3, shuffle=True, threads=0) == order_of(Rows(), 3, shuffle=True)
    )
    assert epochs[0] != order_of(source, shuffle=True, seed=1)[0]


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_permutations_of_a_few_places_are_equally_likely(size):
    draws = 4000
    seen = collections.Counter(
        tuple(pyecho._core.permuted(size, seed, 0, 0, size, 1)) for seed in range(draws)
    )
    orders = math.factorial(size)
    expected = draws / orders
    chi_square = sum((count - expected) ** 2 / expected for count in seen.values())
    freedom = orders - 1
    assert len(seen) == orders
    assert chi_square < freedom + 4 * (2 * freedom) ** 0.5


@pytest.mark.parametrize("sizes", [range(300), [4096, 4097, 100_003]], ids=["small", "large"])
def test_permutation_has_every_place_once_and_any_part_of_it_can_be_had(sizes):
    for size in sizes:
        whole = pyecho._core.permuted(size, 5, 1, 0, size, 1)
        assert np.array_equal(np.sort(whole), np.arange(size))
        part = pyecho._core.permuted(size, 5, 1, min(2, size), size, 3)
        assert np.array_equal(whole[2::3], part)


@pytest.mark.parametrize("workers", [0, 2])
def test_ranks_deal_the_order_of_the_whole_source_among_them(workers):
    def ranks(size):
        options = {"batch_size": 8 // size, "shards": 2, "shuffle": True, "num_workers": workers}

        def rank_does(group):
            with loader_of(group, Rows(50), 1, **options) as loader:
                return [[plain(batch["index"]) for batch in loader] for _ in range(2)]

        return run_world(size, rank_does)[0]

    [whole] = ranks(1)
    one, other = ranks(2)
    for epoch in range(2):
        dealt = zip(one[epoch], other[epoch], strict=True)
        assert list(map(sorted, map(sum, dealt, [[]] * 99))) == list(map(sorted, whole[epoch]))
        assert set(itertools.chain(*whole[epoch])) == set(range(50))


class Evens:
    """A sampler that is told of epochs."""

    def __init__(self):
        self.epoch = None

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return 10

    def __iter__(self):
        return iter(range(2 * self.epoch, 2 * self.epoch + 20, 2))


def test_sampler_decides_what_is_read_and_is_told_of_epochs():
    assert order_of(Rows(), sampler=[5, 3, 5]) == [[5, 3, 5]]
    assert order_of(Rows(), 2, sampler=Evens()) == [[*range(0, 20, 2)], [*range(2, 22, 2)]]
    assert len(pyecho.EchoLoader(Rows(), 2, batch_size=4, sampler=Evens())) == 5
    drawn = DistributedSampler(Rows(), num_replicas=2, rank=1, seed=3)
    epochs = order_of(Rows(), 2, sampler=drawn)
    for epoch, found in enumerate(epochs):
        drawn.set_epoch(epoch)
        assert found == list(drawn)
    [batches] = emitted(COLUMN, 1, factor=1, sampler=BatchSampler(range(5, 9), 2, drop_last=False))
    assert [batch for batch, _ in batches] == [[5, 6], [7, 8]]


RANDOM = {
    "RandomSampler": RandomSampler(Rows()),
    "with replacement": RandomSampler(Rows(), replacement=True, num_samples=80),
    "SubsetRandomSampler": SubsetRandomSampler(range(0, ITEMS, 2)),
    "WeightedRandomSampler": WeightedRandomSampler([1.0] * ITEMS, 40),
}


@pytest.mark.parametrize("sampler", RANDOM.values(), ids=RANDOM)
def test_samplers_of_torch_draw_by_seed_and_epoch_and_leave_the_global_generator(sampler):
    state = torch.get_rng_state()
    epochs = order_of(Rows(), 2, sampler=sampler)
    assert torch.equal(state, torch.get_rng_state())
    torch.rand(1)
    assert epochs == order_of(Rows(), 2, sampler=sampler)
    assert epochs[0] != epochs[1]
    assert epochs[0] != order_of(Rows(), sampler=sampler, seed=1)[0]


class Wrong:
    """A sampler that has another length than it tells."""

    def __init__(self, told, has):
        self.told, self.has = told, has

    def __len__(self):
        return self.told

    def __iter__(self):
        return iter(range(self.has))


def test_sampler_that_breaks_its_word_is_refused_or_warned_of():
    with pytest.raises(EchoError, match="ended after 3 indices, and its length was 5"):
        order_of(Rows(), sampler=Wrong(5, 3))
    with pytest.warns(RuntimeWarning, match="has more than the 3 indices it tells"):
        assert order_of(Rows(), sampler=Wrong(3, 5)) == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (iter([1]), {"shuffle": True}, "shuffle=True needs a source with items by index"),
        (
            DataLoader(Rows()),
            {"num_workers": 1},
            "num_workers= needs .* dataset of this DataLoader",
        ),
        (Rows(), {"shuffle": True, "sampler": [1]}, "both decide the order"),
        (Rows(), {"sampler": iter([1])}, "sampler must be an iterable"),
        (Rows(), {"sampler": 3}, "sampler must be an iterable"),
        (Rows(), {"num_workers": 1, "workers": "fibre"}, "workers must be 'process' or 'thread'"),
        (
            Rows(),
            {"num_workers": 1, "multiprocessing_context": "x"},
            "multiprocessing_context must",
        ),
    ],
)
def test_orders_that_cannot_be_are_refused(source, options, message):
    with pytest.raises(ConfigError, match=message):
        pyecho.EchoLoader(source, batch_size=2, **options)


def test_batches_of_a_dataset_are_split_in_the_order():
    [batches] = emitted(Batches(10), 1, factor=1, batch_size=6, shuffle=True, unbatch=True)
    rows = [row[0] for batch, _ in batches for row in batch["x"]]
    assert sorted(rows) == list(range(30))
