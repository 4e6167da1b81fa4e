"""Loaders over loaders, and over closed or failing ones."""

import numpy as np
import pytest

import pyecho


# The outer loader keeps batches of the inner one, which then has to make more of them.
@pytest.mark.filterwarnings("ignore:the consumer keeps batches:ResourceWarning")
def test_echoing_examples_then_batches_multiplies_the_uses():
    inner = pyecho.EchoLoader(np.arange(12), 2, batch_size=4, shuffle_buffer=6)
    outer = pyecho.EchoLoader(inner, 3, prefetch=1)
    counts = np.zeros(12, int)
    for batch in outer:
        counts += np.bincount(batch, minlength=12)
    assert counts.tolist() == [6] * 12


def test_echoing_batches_then_examples():
    inner = pyecho.EchoLoader(np.split(np.arange(12), 3), 2, shuffle_buffer=2)
    outer = pyecho.EchoLoader(inner, 3, batch_size=5, unbatch=True, shuffle_buffer=4)
    counts = np.zeros(12, int)
    for batch in outer:
        counts += np.bincount(batch, minlength=12)
    assert counts.tolist() == [6] * 12


def test_three_levels_are_deterministic_over_epochs():
    def make():
        loader = pyecho.EchoLoader(range(10), 2, shuffle_buffer=4)
        loader = pyecho.EchoLoader(loader, 1.5, shuffle_buffer=4)
        return pyecho.EchoLoader(loader, 2, batch_size=3, shuffle_buffer=4)

    def epochs(loader):
        return [[batch.tolist() for batch in loader] for _ in range(3)]

    first = epochs(make())
    assert first == epochs(make())
    assert first[0] != first[1]


def test_length_and_epoch_pass_through():
    inner = pyecho.EchoLoader(range(10), 2.5)
    outer = pyecho.EchoLoader(inner, 3)
    outer.set_epoch(4)
    assert len(outer) == 3 * len(inner)
    expected = pyecho.EchoLoader(range(10), 2.5)
    expected.set_epoch(4)
    assert list(outer)[::3] == list(expected)


def test_an_error_at_the_bottom_arrives_at_the_top_as_itself():
    error = OSError("cable out")

    def source():
        yield from range(3)
        raise error

    inner = pyecho.EchoLoader(source(), 2)
    emitted = []
    with pytest.raises(OSError, match="cable out") as raised:
        emitted.extend(pyecho.EchoLoader(inner, 2))
    assert raised.value is error
    assert emitted == [n for n in range(3) for _ in range(4)]


def test_closing_the_inner_loader_reaches_the_consumer():
    inner = pyecho.EchoLoader(iter(int, 1), 2)
    uses = iter(pyecho.EchoLoader(inner, 2))
    next(uses)
    inner.close()
    with pytest.raises(pyecho.Closed):
        for _ in uses:
            pass
