"""`ops.Window`: which elements a use takes, in plain NumPy, alone and before other operations."""

from collections import Counter
from functools import partial
from itertools import chain

import numpy as np
import ops_reference as reference
import pytest
import worlds

import pyecho
from pyecho import ConfigError, ops
from pyecho.items.programs import rows_with
from pyecho.items.spec import NUMPY, Field


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
    if rng.random() < 0.2:
        offsets = begin
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
        expected = reference.window_of(item, window, item_key, ordinal)
        others = []
        if rng.random() < 0.5 and expected.ndim == len(shape):
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
        frames = reference.window_of(clip, window, 7, use)
        whole = made(frames, [ops.Window([0]), *others][1:], use, 0, 0)
        assert found.shape == (4, 8, 8, 3)
        assert (found[1] == found[2]).all()
        expected = reference.transformed(frames, others, use, first=1)
        np.testing.assert_allclose(found, expected, atol=0.03)
        assert whole.shape == found.shape


def test_one_frame_of_a_clip_is_an_image():
    clip = np.random.default_rng(0).integers(0, 256, (9, 6, 5, 3), np.uint8)
    found = made(
        clip, [ops.Window(2, anchors=(4, 4)), ops.CenterCrop(4, axes=1), ops.ToCHW()], 0, 0, 0
    )
    np.testing.assert_array_equal(found, clip[6, 1:5].transpose(2, 0, 1))


@pytest.mark.parametrize(
    ("shape", "operations", "message"),
    [
        ((5, 4), [ops.Window([0], axis=2)], "axes"),
        ((5, 4), [ops.Window([0], anchors=(5, 6))], "an anchor from 5 to 6 on axis 0, which has 5"),
        ((5, 4), [ops.Window([0], anchors=(3, 2))], "an anchor from 3 to 2"),
        ((5, 4), [ops.Window([0], stride=0)], "stride of at least 1"),
        ((0, 4), [ops.Window([0])], "an anchor"),
        ((5, 4), [ops.RandomFlip(0), ops.Window([0])], "Window needs .*first"),
        ((5, 4), [ops.Window([0]), ops.Window([0])], "Window needs .*first"),
        (
            (5, 4),
            [ops.Window([0]), ops.Resize(3)],
            "Resize needs rows and columns without a Window",
        ),
        ((5, 4), [ops.Window([0, 1], axis=1), ops.Normalize((0, 1), (1, 1))], "last axis"),
        ((5, 4, 3), [ops.Window([0], axis=-1), ops.ToCHW()], "last axis"),
        ((5, 4), [ops.Window({"x": [0]})], "under a key of the same names"),
        ((5, 4), [ops.Window(0), ops.Pad(3)], "Window with one offset leaves out its axis"),
        ((5, None), [ops.Window(0)], r"rows \(1, None\), which needs .* one size of all rows"),
    ],
)
def test_windows_that_cannot_be_are_refused(shape, operations, message):
    field = Field(shape, "f4", max_bytes=80 if None in shape else None)
    with pytest.raises(ConfigError, match=message):
        rows_with(operations, field, NUMPY)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ops.Window([0.5]),
        lambda: ops.Window([2**41]),
        lambda: ops.Window([0], anchors=(1, 2, 3)),
        lambda: ops.Window([0], stride="a"),
        lambda: ops.Window(None),
        lambda: ops.Window([]),
        lambda: ops.Window([0], anchors=None),
        lambda: ops.Window(range(10**9)),
    ],
)
def test_wrong_arguments_are_refused(make):
    with pytest.raises(ConfigError):
        make()


def test_windows_that_mean_the_same_are_equal_and_written_alike():
    one = ops.Window({"b": range(3), "a": [np.int64(0)]}, anchors=[0, -2])
    other = ops.Window({"a": (0,), "b": [0, 1, 2]}, 0, (0, -2))
    assert one == other
    assert len({ops.Window([0], axis) for axis in (1, np.int64(1), True)}) == 1
    assert ops.Window(np.array(3)) == ops.Window(3)
    with pytest.raises(ConfigError, match="anchors as a sequence"):
        ops.Window(3, anchors=np.array(3))
    assert (repr(one), hash(one)) == (repr(other), hash(other))


FRAMES, CHUNKS = 12, 9
OFFSETS = {"frames": [-1, 0], "actions": range(4)}
WINDOWS = {("frames", "actions"): [ops.Window(OFFSETS, anchors=(1, -4))]}
ANCHORS = range(1, FRAMES - 3)
ALL = len(ANCHORS)


def chunks(count=CHUNKS, first=0):
    """Chunks whose elements say which they are; the actions have a number for each."""
    return [
        {
            "frames": np.full((FRAMES, 3, 2), chunk) * 100 + np.arange(FRAMES)[:, None, None],
            "actions": chunk * 100 + np.arange(FRAMES),
        }
        for chunk in range(first, first + count)
    ]


def windows_of(batches):
    """(chunk, anchor) of each row, which all its elements agree on."""
    found = []
    for batch in batches:
        for frames, actions in zip(np.asarray(batch["frames"]), batch["actions"], strict=True):
            chunk, anchor = divmod(int(actions[0]), 100)
            assert actions.tolist() == [chunk * 100 + anchor + each for each in range(4)]
            assert (frames == np.array(actions[0] + OFFSETS["frames"])[:, None, None]).all()
            found.append((chunk, anchor))
    return found


EACH = sorted((chunk, anchor) for chunk in range(CHUNKS) for anchor in ANCHORS)


def loader_of(source=None, factor=ALL, **more):
    options = {"batch_size": 5, "shuffle_buffer": 4, "seed": 3, "ops": WINDOWS, **more}
    return pyecho.EchoLoader(chunks() if source is None else source, factor, **options)


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("more", [{}, {"epochs": 3}, {"shuffle_buffer": 1}, {"num_workers": 2}])
def test_as_many_uses_as_anchors_show_each_window_once_an_epoch(threads, more):
    source = Rows(chunks()) if "num_workers" in more else None
    loader = loader_of(source, threads=threads, **more)
    epochs = [windows_of(loader) for _ in range(3)]
    if "epochs" in more:  # which flow into each other
        assert sorted(chain(*epochs)) == sorted(3 * EACH)
    else:
        assert [sorted(each) for each in epochs] == 3 * [EACH]
    assert epochs[0] != epochs[1]


class Rows:
    """A map-style data set."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


@pytest.mark.parametrize("factor", [2, 3.5, pyecho.Adaptive(7, min=2)], ids=str)
def test_fewer_uses_than_anchors_have_different_windows(factor):
    loader = loader_of(factor=factor, shuffle_buffer=6)
    passes = set()
    for _ in range(3):
        found = windows_of(loader)
        assert len(set(found)) == len(found) >= 2 * CHUNKS
        passes.add(tuple(sorted(found)))
    assert len(passes) == 3


@pytest.mark.parametrize("payload", [True, False])
@pytest.mark.parametrize("more", [{}, {"epochs": 3}, {"steps_per_epoch": 5}])
def test_windows_go_on_after_a_resume(payload, more):
    whole = loader_of(factor=3.5, **more)
    found, states = [], []
    for batch in chain(whole, whole):
        found.append(windows_of([batch]))
        states.append(whole.state_dict(payload=payload))
    for number in (0, 3, len(states) - 2):
        resumed = loader_of(factor=3.5, **more)
        resumed.load_state_dict(states[number])
        rest = [
            windows_of([batch]) for _, batch in zip(states, chain(resumed, resumed), strict=False)
        ]
        assert rest[: len(found) - number - 1] == found[number + 1 :]


def test_windows_are_the_same_for_any_number_of_ranks():
    def of_world(size):
        def rank_does(member):
            with worlds.loader_of(
                member,
                chunks(12)[member.rank :: member.size],
                4,
                batch_size=12 // member.size,
                shuffle_buffer=12 // member.size,
                shards=6,
                ops=WINDOWS,
            ) as loader:
                return [[100 * c + a for c, a in windows_of([batch])] for batch in loader]

        results, _ = worlds.run_world(size, rank_does)
        return worlds.global_batches(results)

    alone = of_world(1)
    assert len(set(np.concatenate(alone).tolist())) == 12 * 4
    for size in (2, 3, 6):
        assert of_world(size) == alone


def test_chunks_of_any_length_have_windows_of_one():
    rng = np.random.default_rng(1)
    lengths = rng.integers(4, 30, 20)
    source = [np.arange(100 * i, 100 * i + length) for i, length in enumerate(lengths)]
    loader = pyecho.EchoLoader(
        source,
        30,
        batch_size=10,
        fields=pyecho.Field((None,), "int64", max_bytes=240),
        ops=[ops.Window([0, 3], anchors=(0, -4))],
    )
    found = Counter(int(row[0]) for batch in loader for row in batch if row[1] == row[0] + 3)
    for i, length in enumerate(lengths):
        times = [found[100 * i + anchor] for anchor in range(length - 3)]
        assert sum(times) == 30
        assert max(times) - min(times) <= 1


def test_chunk_that_is_too_short_is_refused():
    loader = pyecho.EchoLoader(
        [np.arange(9), np.arange(2)],
        batch_size=4,
        fields=pyecho.Field((None,), "int64", max_bytes=240),
        ops=[ops.Window([0], anchors=(0, -4))],
    )
    with pytest.raises(pyecho.SpecMismatch, match="an anchor from 0 to -4 on axis 0, which has 2"):
        list(loader)


def test_leaves_of_a_window_have_equal_extents():
    source = [{"frames": np.zeros((5, 2)), "actions": np.zeros(6)}] * 3
    with pytest.raises(ConfigError, match="same size"):
        next(iter(pyecho.EchoLoader(source, batch_size=2, ops=WINDOWS)))


def test_leaves_of_any_length_share_the_anchors_of_the_first():
    rng = np.random.default_rng(2)
    source = []
    for first, second in rng.integers(4, 20, (30, 2)):
        source.append({"a": np.arange(first), "b": np.arange(second)})
    field = pyecho.Field((None,), "int64", max_bytes=160)
    loader = pyecho.EchoLoader(
        source,
        6,
        batch_size=10,
        fields={"a": field, "b": field},
        ops={("b", "a"): [ops.Window({"a": [0], "b": [0]})]},
        with_info=True,
    )
    for batch, info in loader:
        lengths = np.array([len(source[index]["b"]) for index in info.source_index])
        np.testing.assert_array_equal(batch["b"], np.minimum(batch["a"], lengths[:, None] - 1))


def test_places_on_equal_axes_that_are_drawn_apart_are_warned_of():
    spec = {"a": Field((40, 3), "u1"), "b": Field((40,), "u1"), "c": Field((30,), "u1")}
    crop = [ops.RandomCrop(8)]
    with pytest.warns(UserWarning, match=r"\['a'\] and \['b'\] apart, .* equally long \(40\)"):
        rows_with({"a": crop, "b": crop}, spec, NUMPY)
    across = [ops.RandomCrop(2, axes=1)]
    rows_with({("a", "b"): crop, "a": across, "c": crop}, spec, NUMPY)
    rows_with({"a": across, "b": [ops.RandomCrop(8)]}, spec, NUMPY)


def test_few_large_items_with_many_uses_take_memory_for_few():
    """Also where a batch has more rows than all of them together are items."""
    source = np.zeros((3, 40, 1000, 8))
    loader = pyecho.EchoLoader(
        source,
        30,
        batch_size=90,
        shuffle_buffer=2,
        prefetch=1,
        threads=1,
        max_bytes=40 * source[0].nbytes,
        ops=[ops.Window([0]), ops.RandomCrop((1, 1), axes=(1, 2))],
    )
    assert sum(len(batch) for batch in loader) == 90
