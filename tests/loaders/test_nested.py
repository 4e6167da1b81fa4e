"""Loaders over loaders, and over closed or failing ones."""

from importlib import import_module

import numpy as np
import pytest
from drivers import Iterated, flat

import pyecho


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("prefetch", [1, 5])
@pytest.mark.parametrize("augment", [None, lambda batch, rng: batch])
def test_echoing_examples_then_batches_is_no_hoard(threads, prefetch, augment):
    inner = pyecho.EchoLoader(
        Iterated(range(600)), 2, batch_size=4, shuffle_buffer=6, threads=threads
    )
    outer = pyecho.EchoLoader(
        inner,
        3,
        shuffle_buffer=4,
        prefetch=prefetch,
        threads=threads,
        augment=augment,
        augment_workers=3,
    )
    assert np.bincount(flat(outer)).tolist() == [6] * 600  # any warning is an error here


def test_length_and_epoch_pass_through():
    inner = pyecho.EchoLoader(range(10), 2.5)
    outer = pyecho.EchoLoader(inner, 3)
    outer.set_epoch(4)
    assert len(outer) == 3 * len(inner) == 75
    expected = pyecho.EchoLoader(range(10), 2.5)
    expected.set_epoch(4)
    assert list(outer)[::3] == list(expected)


def test_error_at_the_bottom_arrives_at_the_top_as_itself():
    error = OSError("cable out")

    def source():
        yield from range(3)
        raise error

    emitted = []
    with pytest.raises(OSError, match="cable out") as raised:
        emitted.extend(pyecho.EchoLoader(pyecho.EchoLoader(source(), 2), 2))
    assert raised.value is error
    assert emitted == [n for n in range(3) for _ in range(4)]


@pytest.mark.parametrize("augment", [None, lambda batch, rng: batch])
def test_closing_the_inner_loader_reaches_the_consumer(augment):
    inner = pyecho.EchoLoader(iter(int, 1), 2)
    uses = iter(pyecho.EchoLoader(inner, 2, augment=augment))
    next(uses)
    inner.close()
    with pytest.raises(pyecho.Closed, match="EchoLoader is closed"):
        for _ in uses:
            pass


class TellsEpochs(list):
    """A source that remembers the epochs that it was told."""

    def __init__(self, items):
        super().__init__(items)
        self.told = []

    def set_epoch(self, epoch):
        self.told.append(epoch)

    def __iter__(self):  # read in a thread
        return super().__iter__()


@pytest.mark.parametrize("inner", [{}, {"epochs": 3}, {"steps_per_epoch": 3}], ids=str)
@pytest.mark.parametrize("outer", [{}, {"epochs": 3}, {"steps_per_epoch": 5}], ids=str)
@pytest.mark.parametrize("module", ["pyecho", "pyecho.torch"])
def test_source_of_two_loaders_is_told_epochs_in_order(module, inner, outer):
    if module == "pyecho.torch":
        pytest.importorskip("torch")
    loader = import_module(module).EchoLoader
    source = TellsEpochs(range(4))
    both = loader(loader(source, 1, **inner), 1, **outer)
    for _ in range(3):
        list(both)
    assert source.told == sorted(source.told)
    assert set(source.told) >= {0, 1, 2}
