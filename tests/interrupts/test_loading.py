"""Ctrl-C while a DataLoader loads an item in the consumer's thread."""

import pytest
import torch
from torch.utils.data import DataLoader, RandomSampler, Sampler

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


class Interrupted(Sampler):
    """A generator, as PyTorch's samplers are, which Ctrl-C ends for good."""

    strikes = True

    def __iter__(self):
        for at, index in enumerate(torch.randperm(53).tolist()):
            if at == 30 and self.strikes:
                self.strikes = False
                raise KeyboardInterrupt
            yield index

    def __len__(self):
        return 53


@pytest.mark.parametrize("given", [False, True])
def test_ctrl_c_while_the_order_is_drawn_loses_no_batch(given):
    def order(*, strikes):
        sampler = Interrupted()
        sampler.strikes = strikes
        if given:
            sampler.generator = torch.Generator().manual_seed(3)
        return {"batch_size": 5, "sampler": sampler}

    assert list(epochs(order(strikes=True), {})) == list(epochs(order(strikes=False), {}))


def test_ctrl_c_at_the_beginning_draws_once_from_a_generator_of_the_user():
    def order():
        generator = torch.Generator().manual_seed(5)
        return {"batch_size": 5, "shuffle": True, "generator": generator}

    assert list(epochs(order(), {}, {1})) == list(epochs(order(), {}))
