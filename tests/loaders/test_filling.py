"""A pool that has much of the data, and a source that fills it slowly."""

import time
import warnings

import numpy as np
import pytest

import pyecho
from pyecho.run import filling


class Slow:
    """A sized source that takes a millisecond an item."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return self.items

    def __iter__(self):
        for number in range(self.items):
            time.sleep(1e-3)
            yield np.full(2, number)


@pytest.mark.parametrize(("capacity", "told"), [(20, True), (60, True), (90, True), (19, False)])
def test_pool_of_a_third_of_the_data_is_told_with_the_seconds_of_its_filling(
    capacity, told, monkeypatch
):
    monkeypatch.setattr(filling, "LONG_SECONDS", 0.01)
    loader = pyecho.EchoLoader(Slow(60), 2, batch_size=4, shuffle_buffer=capacity)
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("default")
        for _ in range(2):
            assert sorted(np.concatenate([batch[:, 0].copy() for batch in loader])) == sorted(
                2 * [*range(60)]
            )
    messages = [str(each.message) for each in given]
    assert len(messages) == told
    if told:
        holds = min(capacity, 60)
        assert (
            f"(Slow) took 0 s until the first batch, because the pool holds {holds}"
            in (messages[0])
        )


@pytest.mark.filterwarnings("error")
def test_pool_that_fills_soon_is_not_told():
    loader = pyecho.EchoLoader(Slow(60), 2, batch_size=4, shuffle_buffer=60)
    assert sum(len(batch) for batch in loader) == 120
