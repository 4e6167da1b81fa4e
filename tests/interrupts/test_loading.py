"""Ctrl-C while a DataLoader loads an item in the consumer's thread."""

import pytest
import torch
from torch.utils.data import DataLoader, RandomSampler

import pyecho.torch


class Rows:
    """A map-style dataset whose loading is interrupted after some items."""

    def __init__(self, interrupted):
        self.loaded, self.interrupted = 0, interrupted

    def __len__(self):
        return 53

    def __getitem__(self, index):
        self.loaded += 1
        if self.loaded in self.interrupted:
            raise KeyboardInterrupt
        return torch.tensor(index)


def epochs(order, options, interrupted=()):
    torch.manual_seed(1)
    loader = pyecho.torch.EchoLoader(
        DataLoader(Rows(interrupted), **order), 2, threads=0, **options
    )
    for _ in range(2):
        taken, iterator = [], iter(loader)
        while True:
            try:
                taken.append(next(iterator).tolist())
            except KeyboardInterrupt:
                continue
            except StopIteration:
                break
        yield taken


@pytest.mark.parametrize("options", [{}, {"batch_size": 4, "unbatch": True}])
def test_ctrl_c_while_an_item_is_loaded_loses_no_batch(options):
    order = {"batch_size": 5, "shuffle": True}
    assert list(epochs(order, options, {7, 23, 24, 70})) == list(epochs(order, options))


def test_ctrl_c_while_an_item_is_loaded_loses_no_example():
    order = {"batch_size": None, "sampler": RandomSampler(range(53))}
    assert list(epochs(order, {}, {7, 23, 24, 70})) == list(epochs(order, {}))
