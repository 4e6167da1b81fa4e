"""The output with workers is that without, in every configuration."""

import random

import numpy as np
import pytest
import torch
from worked import Named, Rows, emitted, plain

import pyecho
import pyecho.torch

BATCHES = {"batch_size": 8}
CONFIGURATIONS = {  # beside those of the machine
    "sampler": BATCHES | {"sampler": [3, 1, 4, 1, 5, 9, 2, 6] * 5},
    "progress": BATCHES | {"progress": True},
    "copies": {"copy": True},
}


@pytest.mark.parametrize("workers", ["process", "thread"])
@pytest.mark.parametrize("options", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_is_the_same_in_every_configuration(options, workers):
    for dataset in (Rows(), Named()):
        expected = emitted(dataset, **options)
        assert emitted(dataset, num_workers=3, workers=workers, **options) == expected


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_is_the_same_for_every_start_method(method):
    started = {"num_workers": 2, "multiprocessing_context": method}
    for options in (BATCHES, {"shuffle_buffer": 4}):
        assert emitted(Named(), **started, **options) == emitted(Named(), **options)


class Tensors(Rows):
    def __getitem__(self, index):
        wide = torch.arange(3000, dtype=torch.bfloat16).reshape(3, 1000).T + index
        return wide, {"parts": [torch.tensor(index), torch.empty(0, 4)], "key": index % 2 == 0}


@pytest.mark.parametrize("workers", ["process", "thread"])
@pytest.mark.parametrize("options", [BATCHES, {"shuffle_buffer": 5}], ids=["examples", "batches"])
def test_tensors_of_any_dtype_and_layout_arrive_as_they_are(options, workers):
    loaders = [
        pyecho.torch.EchoLoader(Tensors(20), 2, num_workers=number, workers=workers, **options)
        for number in (0, 2)
    ]
    for (wide, rest), (other, others) in zip(*loaders, strict=True):
        assert (wide.dtype, wide.shape) == (other.dtype, other.shape)
        assert torch.equal(wide, other)
        assert plain(rest) == plain(others)


def test_large_arrays_come_through_the_channel_whole_and_writable():
    class Large(Rows):
        def __getitem__(self, index):
            return [np.full(300_000, index), np.full((1000, 9), index)[:, ::2], None, "text"]

    [batches] = emitted(Large(6), 1, factor=1)
    assert emitted(Large(6), 1, factor=1, num_workers=2) == [batches]
    for large, *_ in pyecho.EchoLoader(Large(2), 2, num_workers=1, copy=True):
        large += 1


class Told(Rows):
    """Tells the epoch and what workers see; draws random numbers."""

    epoch = None

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __getitem__(self, index):
        info = torch.utils.data.get_worker_info()
        assert info is None or (info.num_workers in (1, 3) and info.dataset is self)
        drawn = random.random(), np.random.random(), float(torch.rand(()))
        return np.array([index, self.epoch, *drawn])


def test_workers_know_the_epoch_and_draw_the_same_numbers_whatever_their_number():
    epochs = emitted(Told(), num_workers=1, shuffle=True, **BATCHES)
    assert epochs == emitted(Told(), num_workers=3, shuffle=True, **BATCHES)
    for epoch, batches in enumerate(epochs):
        rows = np.concatenate([batch for batch, _ in batches])
        assert (rows[:, 1] == epoch).all()
        assert len(np.unique(rows[:, 2:])) == 3 * 60


class Chosen(Rows):
    """Makes a batch of a list of indices."""

    def __getitem__(self, index):
        return {"rows": np.repeat(np.array(index)[:, None], 50, axis=1)}


def test_long_lists_of_indices_and_long_answers_do_not_wait_for_each_other():
    batches = [list(range(start, start + 5000)) for start in range(0, 100_000, 5000)]
    expected = emitted(Chosen(), 1, factor=1, sampler=batches)
    assert emitted(Chosen(), 1, factor=1, sampler=batches, num_workers=2) == expected


def test_sampler_of_long_and_short_indices_waits_for_none():
    indices = [[7], *([5, list(range(60_000))] * 20)]

    class Either(Rows):
        def __getitem__(self, index):
            return np.zeros((400_000,)) if isinstance(index, int) else np.zeros(len(index))

    [batches] = emitted(Either(), 1, factor=1, sampler=indices, num_workers=1)
    assert [len(batch) for batch, _ in batches] == [1, *([400_000, 60_000] * 20)]
