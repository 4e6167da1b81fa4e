"""`ops.Window`: which elements a use takes, in plain NumPy, alone and before other operations."""

from functools import partial

import numpy as np
import ops_reference as reference
import pytest

from pyecho import ConfigError, _core, ops
from pyecho.items.programs import rows_with
from pyecho.items.spec import NUMPY, Field


def bounds_of(window, extent):
    first, last = (each + extent if each < 0 else each for each in window.anchors)
    return range(first, last + 1, window.stride)


def taken(item, window, item_key, ordinal, offsets=None, draws=0):
    """The row that a use takes, by NumPy."""
    extent = item.shape[window.axis]
    anchors = bounds_of(window, extent)
    seed = (item_key + (draws + 1) * reference.GOLDEN_GAMMA) & reference.MASK
    round_, place = divmod(ordinal, len(anchors))
    [place] = _core.permuted(len(anchors), seed, round_, place, place + 1, 1)
    wanted = anchors[place] + np.array(window.offsets if offsets is None else offsets)
    return item.take(np.clip(wanted, 0, extent - 1), window.axis)


def made(item, operations, key, item_key, ordinal):
    [(field, program)], _ = rows_with(operations, Field(item.shape, item.dtype), NUMPY)
    row = program.run(key, np.ascontiguousarray(item), item_key, ordinal)
    return row.view(field.dtype).reshape(field.shape)


def some_window(rng, shape):
    axis = int(rng.integers(0, len(shape)))
    extent = shape[axis]
    first = int(rng.integers(0, extent))
    last = int(rng.integers(first, extent))
    if rng.random() < 0.5:
        first, last = first - extent, last - extent
    begin, size = int(rng.integers(-4, 4)), int(rng.integers(1, 6))
    step = int(rng.choice([1, 1, -1, 2, 3]))
    offsets = [begin + step * each for each in range(size)]
    if rng.random() < 0.3:
        offsets = rng.integers(-9, 9, size)
    return ops.Window(offsets, axis, (first, last), int(rng.integers(1, 4)))


@pytest.mark.parametrize("seed", range(4))
def test_windows_are_those_of_numpy_alone_and_before_other_operations(seed):
    rng = np.random.default_rng(seed)
    for _ in range(1000):
        shape = tuple(int(each) for each in rng.integers(1, 9, int(rng.integers(1, 5))))
        item = rng.integers(0, 250, shape).astype(rng.choice(["uint8", "int16", "f4", "f8"]))
        window = some_window(rng, shape)
        key, item_key = (int(each) for each in rng.integers(0, 2**63, 2))
        ordinal = int(rng.integers(0, 20))
        expected = taken(item, window, item_key, ordinal)
        others = []
        if rng.random() < 0.5:
            axis = int(rng.integers(0, len(shape)))
            part = int(rng.integers(1, expected.shape[axis] + 1))
            others += [ops.RandomCrop(part, axis), ops.RandomFlip(axis), ops.Pad(7, 3, axis)]
        if rng.random() < 0.5:
            others.append(ops.Normalize(0.5, 0.25))
        found = made(item, [window, *others], key, item_key, ordinal)
        expected = reference.transformed(expected, others, key, first=1)
        np.testing.assert_array_equal(found, expected, strict=True)


def test_uses_of_an_item_have_each_anchor_once_before_any_again():
    window = ops.Window([0], anchors=(2, -3), stride=2)
    anchors = [*range(2, 18, 2)]
    takes = partial(made, np.arange(20), [window], 0)
    orders = set()
    for item_key in range(30):
        found = [int(takes(item_key, use)[0]) for use in range(3 * len(anchors))]
        rounds = np.reshape(found, (3, -1))
        assert (np.sort(rounds, 1) == anchors).all()
        orders |= set(map(tuple, rounds.tolist()))
    assert len(orders) > 80


def test_frames_of_a_window_are_resampled_alike():
    rng = np.random.default_rng(0)
    clip = rng.integers(0, 256, (12, 17, 21, 3), np.uint8)
    window = ops.Window([-3, 0, 0, 20])
    others = [ops.RandomResizedCrop(8), ops.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))]
    for use in range(30):
        found = made(clip, [window, *others], use, 7, use)
        frames = taken(clip, window, 7, use)
        whole = made(frames, [ops.Window([0]), *others][1:], use, 0, 0)
        assert found.shape == (4, 8, 8, 3)
        assert (found[1] == found[2]).all()
        expected = reference.transformed(frames, others, use, first=1)
        np.testing.assert_allclose(found, expected, atol=0.03)
        assert whole.shape == found.shape


@pytest.mark.parametrize(
    ("shape", "operations", "message"),
    [
        ((5, 4), [ops.Window([])], "offset"),
        ((5, 4), [ops.Window([0], axis=2)], "axes"),
        ((5, 4), [ops.Window([0], anchors=(5, 6))], "an anchor from 5 to 6 on axis 0, which has 5"),
        ((5, 4), [ops.Window([0], anchors=(3, 2))], "an anchor from 3 to 2"),
        ((5, 4), [ops.Window([0], stride=0)], "stride of at least 1"),
        ((0, 4), [ops.Window([0])], "an anchor"),
        ((5, 4), [ops.RandomFlip(0), ops.Window([0])], "Window needs .*first"),
        ((5, 4), [ops.Window([0]), ops.Window([0])], "Window needs .*first"),
        ((5, 4), [ops.Window([0]), ops.Resize(3)], "Resize needs rows and columns without a Window"),
        ((5, 4), [ops.Window([0, 1], axis=1), ops.Normalize((0, 1), (1, 1))], "last axis"),
        ((5, 4, 3), [ops.Window([0], axis=-1), ops.ToCHW()], "last axis"),
        ((5, 4), [ops.Window({"x": [0]})], "under a key of the same names"),
    ],
)
def test_windows_that_cannot_be_are_refused(shape, operations, message):
    with pytest.raises(ConfigError, match=message):
        rows_with(operations, Field(shape, np.dtype("f4")), NUMPY)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ops.Window([0.5]),
        lambda: ops.Window([2**41]),
        lambda: ops.Window([0], anchors=(1, 2, 3)),
        lambda: ops.Window([0], stride="a"),
    ],
)
def test_wrong_arguments_are_refused(make):
    with pytest.raises(ConfigError):
        make()


def test_windows_that_mean_the_same_are_equal_and_written_alike():
    one = ops.Window({"b": range(3), "a": [np.int64(0)]}, anchors=[0, -2])
    other = ops.Window({"a": (0,), "b": [0, 1, 2]}, 0, (0, -2))
    assert one == other
    assert repr(one) == repr(other)
