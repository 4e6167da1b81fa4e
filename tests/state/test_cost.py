"""A state costs what it weighs."""

import time

import numpy as np
import pytest

import pyecho


@pytest.mark.parametrize("batch_size", [None, 64])
def test_state_without_items_costs_what_it_weighs(batch_size):
    items = list(range(100_000)) if batch_size is None else np.arange(100_000)
    loader = pyecho.EchoLoader(items, 2, batch_size=batch_size, shuffle_buffer=50_000)
    batches = iter(loader)
    next(batches)

    def seconds(payload):
        def one():
            began = time.perf_counter()
            loader.state_dict(payload=payload)
            return time.perf_counter() - began

        return min(one() for _ in range(5))

    assert seconds(payload=False) < seconds(payload=True) / 5
