"""Batch echoing: items pass through by reference, and all uses of an item share one storage."""

from collections import namedtuple

import numpy as np
import pytest

import pyecho

Pair = namedtuple("Pair", ["left", "right"])


def uses_of_each(loader, count):
    """Return the emitted objects, `count` after `count`."""
    emitted = list(loader)
    return [emitted[start : start + count] for start in range(0, len(emitted), count)]


@pytest.mark.parametrize("shuffle_buffer", [0, 1, 4])
def test_objects_come_out_as_they_went_in(shuffle_buffer):
    source = [object(), "text", b"bytes", 3, None, {1, 2}]
    emitted = list(pyecho.EchoLoader(source, 3, shuffle_buffer=shuffle_buffer))
    assert sorted(map(id, emitted)) == sorted(id(item) for item in source for _ in range(3))


def test_all_uses_of_an_item_are_one_object():
    source = [{"x": np.zeros(2), "y": [1, "a"]} for _ in range(3)]
    for uses in uses_of_each(pyecho.EchoLoader(source, 4), 4):
        assert len({id(use) for use in uses}) == 1
        assert len({id(use["x"]) for use in uses}) == 1


def test_a_shuffle_buffer_of_batches_emits_the_same_object_at_each_use():
    source = [np.full(3, item) for item in range(10)]
    emitted = list(pyecho.EchoLoader(source, 3, shuffle_buffer=4))
    assert sorted(int(batch[0]) for batch in emitted) == sorted(list(range(10)) * 3)
    for item in range(10):
        assert len({id(batch) for batch in emitted if batch[0] == item}) == 1


def test_numpy_leaves_are_read_only_views_without_a_copy():
    array = np.arange(6.0)
    [first, second] = pyecho.EchoLoader([array], 2)
    assert first is second
    assert np.shares_memory(first, array)
    assert not first.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 1
    assert array.flags.writeable, "the source's own array is left alone"


def test_views_of_a_read_only_array_cannot_be_made_writable():
    array = np.arange(3.0)
    array.flags.writeable = False
    [view] = pyecho.EchoLoader([array], 1)
    with pytest.raises(ValueError, match="WRITEABLE"):
        view.flags.writeable = True


def test_nests_keep_their_kinds_and_leaves_of_other_kinds_their_identity():
    thing, text = object(), "text" * 2
    item = {"pair": Pair(np.zeros(1), thing), "list": [text, (np.ones(2), None)]}
    [use] = pyecho.EchoLoader([item], 1)
    assert type(use["pair"]) is Pair
    assert use["pair"].right is thing
    assert type(use["list"]) is list
    assert use["list"][0] is text
    assert type(use["list"][1]) is tuple
    assert not use["pair"].left.flags.writeable
    assert not use["list"][1][0].flags.writeable


def test_an_item_without_arrays_is_the_very_object():
    class Record(dict):
        pass

    source = [Record(a=1), [1, "b"], (None,), Pair(1, 2)]
    assert all(use is item for use, item in zip(pyecho.EchoLoader(source, 1), source, strict=True))


def test_items_may_differ_in_everything():
    source = [np.zeros(2), np.zeros((3, 3), np.uint8), {"a": 1}, "text", np.zeros(0)]
    emitted = list(pyecho.EchoLoader(source, 2))
    assert [type(use) for use in emitted[::2]] == [type(use) for use in source]
    assert [use.shape for use in emitted[2:4]] == [(3, 3), (3, 3)]


def test_object_arrays_pass_through():
    array = np.array([{"a": 1}, None], dtype=object)
    [use] = pyecho.EchoLoader([array], 1)
    assert use[0] is array[0]


@pytest.mark.parametrize("shuffle_buffer", [0, 2])
def test_copy_gives_every_use_its_own_writable_storage(shuffle_buffer):
    source = [{"x": np.arange(3.0), "tags": ["a"]} for _ in range(2)]
    seen = []
    for use in pyecho.EchoLoader(source, 3, copy=True, shuffle_buffer=shuffle_buffer):
        assert use["x"].tolist() == [0, 1, 2]
        assert use["tags"] == ["a"]
        use["x"] += 1
        use["tags"].append("b")
        seen.append(use)
    assert len(seen) == 6
    assert not any(np.shares_memory(seen[0]["x"], other["x"]) for other in seen[1:])
    assert source[0]["x"].tolist() == [0, 1, 2]


def test_an_item_is_let_go_after_its_last_use():
    class Item:
        alive = 0

        def __init__(self):
            Item.alive += 1

        def __del__(self):
            Item.alive -= 1

    most = 0
    for use in pyecho.EchoLoader((Item() for _ in range(50)), 2, prefetch=2):
        most = max(most, Item.alive)
        del use
    # The pool's one, two ahead, one in the feeder's hand, the consumer's last one.
    assert most <= 6
    assert Item.alive <= 1


@pytest.mark.parametrize(
    ("argument", "value"), [("unbatch", True), ("unique_in_batch", True), ("drop_last", True)]
)
def test_arguments_about_new_batches_need_a_batch_size(argument, value):
    with pytest.raises(pyecho.ConfigError, match=rf"{argument}=True.*needs a batch_size"):
        pyecho.EchoLoader([1], 2, **{argument: value})
