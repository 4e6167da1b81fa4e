"""Batch echoing: items pass through by reference, and all uses of an item share one storage.

What becomes of nests and of the arrays and tensors in them is in test_nests.py.
"""

import numpy as np
import pytest
import torch
from drivers import drivers, loader_of, waiting_drivers

import pyecho


@drivers
@pytest.mark.parametrize("shuffle_buffer", [0, 1, 4])
def test_objects_come_out_as_they_went_in(driver, shuffle_buffer):
    source = [object(), "text", 3, {1, 2}, {"a": 1}, [1, "b"], (None,)]
    emitted = list(loader_of(driver, source, 3, shuffle_buffer=shuffle_buffer))
    assert sorted(map(id, emitted)) == sorted(id(item) for item in source for _ in range(3))


@drivers
@pytest.mark.parametrize("shuffle_buffer", [0, 4])
def test_all_uses_of_an_item_are_one_read_only_view_of_what_the_source_gave(driver, shuffle_buffer):
    source = [{"x": np.full(2, n), "y": [n, "a"]} for n in range(10)]
    emitted = list(loader_of(driver, source, 4, shuffle_buffer=shuffle_buffer))
    assert len({id(use) for use in emitted}) == 10
    for use in emitted:
        given = source[use["y"][0]]["x"]
        assert np.shares_memory(use["x"], given)
        assert not use["x"].flags.writeable
        assert given.flags.writeable, "the source's own array is left alone"
        with pytest.raises(ValueError, match="read-only"):
            use["x"][0] = 1


def test_views_of_a_read_only_array_cannot_be_made_writable():
    array = np.arange(3.0)
    array.flags.writeable = False
    [view] = pyecho.EchoLoader([array], 1)
    with pytest.raises(ValueError, match="WRITEABLE"):
        view.flags.writeable = True


def test_a_masked_array_keeps_its_mask_and_both_are_read_only():
    [use] = pyecho.EchoLoader([np.ma.masked_array([1.0, 2.0], [0, 1])], 1)
    assert use.mask.tolist() == [False, True]
    for value in (5, np.ma.masked):
        with pytest.raises(ValueError, match="read-only"):
            use[0] = value


@drivers
@pytest.mark.parametrize("shuffle_buffer", [0, 2])
def test_copy_gives_every_use_its_own_writable_storage(driver, shuffle_buffer):
    source = [{"x": np.arange(3.0), "t": torch.zeros(2), "tags": ["a"]} for _ in range(2)]
    seen = []
    for use in loader_of(driver, source, 3, copy=True, shuffle_buffer=shuffle_buffer):
        assert (use["x"].tolist(), use["t"].tolist(), use["tags"]) == ([0, 1, 2], [0, 0], ["a"])
        use["x"] += 1
        use["t"] += 1
        use["tags"].append("b")
        seen.append(use)
    assert len(seen) == 6
    assert not any(np.shares_memory(seen[0]["x"], other["x"]) for other in seen[1:])
    assert source[0]["x"].tolist() == [0, 1, 2]


@waiting_drivers
def test_an_item_is_let_go_after_its_last_use(driver):
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


def item():
    return {"image": torch.zeros(3), "meta": [torch.ones(2), "name"]}


@drivers
@pytest.mark.parametrize("shuffle_buffer", [0, 1])
def test_a_tensor_changed_in_place_is_named_and_the_loader_goes_on(driver, shuffle_buffer):
    if driver == "augmented":
        pytest.skip("uses are checked ahead of the consumer")
    uses = iter(loader_of(driver, [item(), item()], 2, shuffle_buffer=shuffle_buffer))
    next(uses)["meta"][0].add_(1)
    with pytest.raises(pyecho.EchoMutated, match=r"item\['meta'\]\[0\] was changed.*copy=True"):
        next(uses)
    assert [use["image"].sum().item() for use in uses] == [0, 0]


def test_what_is_no_mutation_of_a_shared_item_passes():
    for factor, copy in ((1, False), (3, True)):
        for use in pyecho.EchoLoader([item(), item()], factor, copy=copy):
            assert (use["image"] + 1).sum() == 3
            use["image"].add_(1)
    with torch.inference_mode():
        without_version = torch.zeros(2)
    assert len(list(pyecho.EchoLoader([without_version], 3))) == 3


@waiting_drivers
def test_a_source_that_writes_into_one_tensor_over_and_over_is_found_out(driver):
    shared = torch.zeros(2)

    def source():
        for value in range(3):
            shared.fill_(value)
            yield shared

    with pytest.raises(pyecho.EchoMutated):
        list(loader_of(driver, source(), 2, shuffle_buffer=3))
