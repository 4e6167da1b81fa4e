"""Batch echoing: items pass through by reference, and all uses of an item share one storage.

Nests, and the arrays and tensors in them, are in test_nests.py.
"""

import numpy as np
import pytest
import torch
from drivers import loader_of, waiting_drivers

import pyecho


def test_views_of_a_read_only_array_cannot_be_made_writable():
    array = np.arange(3.0)
    array.flags.writeable = False
    [view] = pyecho.EchoLoader([array], 1)
    with pytest.raises(ValueError, match="WRITEABLE"):
        view.flags.writeable = True


def test_masked_array_keeps_its_mask_and_both_are_read_only():
    [use] = pyecho.EchoLoader([np.ma.masked_array([1.0, 2.0], [0, 1])], 1)
    assert use.mask.tolist() == [False, True]
    for value in (5, np.ma.masked):
        with pytest.raises(ValueError, match="read-only"):
            use[0] = value


@waiting_drivers
def test_item_is_let_go_after_its_last_use(driver):
    class Item:
        alive = 0

        def __init__(self):
            Item.alive += 1

        def __del__(self):
            Item.alive -= 1

    most = 0
    for use in loader_of(driver, (Item() for _ in range(50)), 2, prefetch=2):
        most = max(most, Item.alive)
        del use
    # The pool's one; two ahead, also of augmentation; in the hands of each thread and the consumer.
    assert most <= (12 if driver == "augmented" else 6)
    assert Item.alive <= 1


# ---------------------------------------------------------------- EchoMutated


def test_tensor_without_a_version_is_not_watched():
    with torch.inference_mode():
        tensor = torch.zeros(2)
    assert len(list(pyecho.EchoLoader([tensor], 3))) == 3


@waiting_drivers
def test_source_that_writes_into_one_tensor_over_and_over_is_found_out(driver):
    shared = torch.zeros(2)

    def source():
        for value in range(3):
            shared.fill_(value)
            yield shared

    with pytest.raises(pyecho.EchoMutated):
        list(loader_of(driver, source(), 2, shuffle_buffer=3))
