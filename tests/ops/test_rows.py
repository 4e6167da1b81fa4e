"""Rows of a loader with `ops`: the draws of each use are its own, whatever makes the batches."""

import zlib

import numpy as np
import ops_reference as reference
import pytest
import torch
import worlds

import pyecho
import pyecho.torch
from pyecho import ops

ITEMS = 23
PIPELINE = [
    ops.RandomResizedCrop(9),
    ops.RandomFlip(1),
    ops.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4)),
    ops.ToCHW(),
]


def images(items=ITEMS):
    rng = np.random.default_rng(items)
    return [
        {"image": rng.integers(0, 256, (17, 21, 3), np.uint8), "label": index}
        for index in range(items)
    ]


def rows_of(loader):
    """All rows of one epoch, with their items and uses."""
    rows = []
    for batch, info in loader:
        assert (batch["label"] == info.source_index).all()
        rows += [
            (row.copy(), int(index), int(use))
            for row, index, use in zip(batch["image"], info.source_index, info.use, strict=True)
        ]
    return rows


def loader_of(source=None, factor=3, threads=1, operations=None, **more):
    return pyecho.EchoLoader(
        images() if source is None else source,
        factor,
        batch_size=4,
        shuffle_buffer=7,
        seed=11,
        threads=threads,
        with_info=True,
        ops={"image": PIPELINE if operations is None else operations},
        **more,
    )


def same(one, other):
    return len(one) == len(other) and all(
        np.array_equal(a[0], b[0]) and a[1:] == b[1:] for a, b in zip(one, other, strict=True)
    )


def test_ops_draw_by_the_number_of_the_use():
    operations = [ops.RandomCrop((9, 9)), ops.RandomFlip(1), ops.Normalize(0.5, 0.25), ops.ToCHW()]
    loader, source = loader_of(operations=operations), images()
    for epoch in range(2):
        for number, (row, index, _) in enumerate(rows_of(loader)):
            key = reference.key_of_use(11, epoch, number)
            wanted = reference.transformed(source[index]["image"], operations, key)
            np.testing.assert_array_equal(row, wanted)


@pytest.mark.parametrize("size", [2, 3, 6])
def test_any_number_of_ranks_draws_alike(size):
    def of_world(size):
        def rank_does(member):
            loader = worlds.loader_of(
                member,
                images(24)[member.rank :: member.size],
                2,
                batch_size=12 // member.size,
                shuffle_buffer=12 // member.size,
                shards=6,
                ops={"image": PIPELINE},
            )
            with loader:
                return [[zlib.crc32(row.tobytes()) for row in batch["image"]] for batch in loader]

        results, _ = worlds.run_world(size, rank_does)
        return worlds.global_batches(results)

    assert of_world(size) == of_world(1)


def test_leaves_in_one_key_share_their_draws():
    rng = np.random.default_rng(0)
    volumes = rng.integers(0, 1000, (10, 8, 9, 7), np.int16)
    items = [{"volume": each.astype(np.float32), "mask": each} for each in volumes]
    shared = [ops.RandomCrop((4, 4, 4)), ops.RandomFlip(0), ops.RandomFlip(2)]
    loader = pyecho.EchoLoader(items, 4, batch_size=5, ops={("volume", "mask"): shared})
    for batch in loader:
        assert (batch["volume"] == batch["mask"]).all()
    apart = pyecho.EchoLoader(items, 4, batch_size=5, ops={"volume": shared, "mask": shared})
    with pytest.warns(UserWarning, match="name them in one key"):
        assert any((batch["volume"] != batch["mask"]).any() for batch in apart)


def test_labels_are_resampled_without_interpolation():
    items = [{"image": np.full((20, 20, 3), 9, np.uint8), "mask": np.eye(20, dtype=np.uint8) * 7}]
    crop = ops.RandomResizedCrop(8, interpolation=("bilinear", "nearest"))
    batch = next(iter(pyecho.EchoLoader(items, 4, batch_size=4, ops={("image", "mask"): [crop]})))
    assert batch["image"].shape == (4, 8, 8, 3)
    assert set(np.unique(batch["mask"])) <= {0, 7}


def test_loader_of_arrays_needs_no_name():
    loader = pyecho.torch.EchoLoader(
        torch.randint(0, 256, (12, 3, 10, 10), dtype=torch.uint8),
        2,
        batch_size=4,
        ops=[ops.RandomCrop((6, 6), axes=(1, 2)), ops.Normalize(0, 1), ops.Cast("bfloat16")],
    )
    batch = next(iter(loader))
    assert (batch.shape, batch.dtype) == ((4, 3, 6, 6), torch.bfloat16)


def test_buffer_transforms_on_the_way():
    items = images(6)
    buffer = pyecho.EchoBuffer(
        pyecho.spec_of(items[0]), batch_size=3, factor=2, ops={"image": [ops.CenterCrop((5, 5))]}
    )
    for item in items:
        buffer.put(item)
    buffer.close()
    for batch in buffer:
        for row, label in zip(batch["image"], batch["label"], strict=True):
            np.testing.assert_array_equal(row, items[label]["image"][6:11, 8:13])


def test_wrong_places_of_operations_say_what_to_do():
    with pytest.raises(pyecho.ConfigError, match="batch_size"):
        pyecho.EchoLoader(images(), 2, ops=[ops.ToCHW()])
    with pytest.raises(pyecho.ConfigError, match="collate_fn"):
        pyecho.EchoLoader(images(), 2, batch_size=2, ops=[ops.ToCHW()], collate_fn=list)
    with pytest.raises(pyecho.ConfigError, match=r"use Device\(augment=\)"):
        there = pyecho.torch.Device("cuda", echo=True)
        pyecho.torch.EchoLoader(images(), 2, batch_size=2, ops=[ops.ToCHW()], device=there)
    for wrong, message in (
        ({"picture": [ops.ToCHW()]}, "'picture'.*'image', 'label'"),
        ({"label": [ops.ToCHW()]}, "'label'"),
        ([ops.RandomCrop((99, 99))], "RandomCrop.*99"),
        ([lambda x: x], "pyecho.ops"),
    ):
        with pytest.raises(pyecho.ConfigError, match=message):
            next(iter(pyecho.EchoLoader(images(), 2, batch_size=2, ops=wrong)))
    halved = [{"image": np.zeros((8, 8)), "mask": np.zeros((4, 4))}] * 3
    crop = {("image", "mask"): [ops.RandomFlip(0), ops.RandomCrop(3)]}
    with pytest.raises(pyecho.ConfigError, match=r"'image': \[8\], 'mask': \[4\]"):
        next(iter(pyecho.EchoLoader(halved, 2, batch_size=2, ops=crop)))
    with pytest.raises(pyecho.ConfigError, match=r"'mask'.*ToCHW needs rows, columns and channels"):
        next(iter(pyecho.EchoLoader(halved, 2, batch_size=2, ops={"mask": [ops.ToCHW()]})))
    strings = [{"image": "a.png", "x": np.zeros(2)}] * 3
    with pytest.raises(pyecho.ConfigError, match="by reference"):
        next(iter(pyecho.EchoLoader(strings, 2, batch_size=2, ops={"image": [ops.ToCHW()]})))


FLIP = [ops.RandomFlip(0)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"a.b": FLIP}, r"'a\.b', and an example has several of that name: 'a\.b', 'a\.b', '1'"),
        ({(1, "1"): FLIP}, r"the leaf '1' twice: \['1', '1'\]"),
        ({1: FLIP, "1": FLIP}, r"two keys of ops name the same leaves, got \[1, '1'\]"),
        ({("1",): FLIP, "1": FLIP}, "two keys of ops name the same leaves"),
    ],
)
def test_ops_that_name_two_leaves_or_one_twice_are_refused(given, message):
    items = [{"a.b": np.zeros(3), "a": {"b": np.zeros(3)}, 1: np.zeros(3)}]
    with pytest.raises(pyecho.ConfigError, match=message):
        next(iter(pyecho.EchoLoader(items, 2, batch_size=2, ops=given)))


@pytest.mark.parametrize("key", ["a.b", 1])
def test_fields_that_name_two_leaves_or_one_twice_are_refused(key):
    items = [{"a.b": np.zeros(3), "a": {"b": np.zeros(3)}, 1: np.zeros(3)}]
    field = pyecho.Field((None,), "float64", max_bytes=99)
    with pytest.raises(pyecho.ConfigError, match=r"several of that name|twice"):
        next(iter(pyecho.EchoLoader(items, 2, batch_size=2, fields={key: field, "1": field})))


def test_leaves_may_share_the_draws_of_one_key_and_have_operations_of_another():
    items = [{"image": np.arange(9, dtype=np.uint8), "mask": np.arange(9, dtype=np.uint8)}]
    loader = pyecho.EchoLoader(
        items,
        4,
        batch_size=4,
        ops={("image", "mask"): [ops.RandomCrop(3)], "image": [ops.Cast("float32")]},
    )
    [batch] = loader
    assert batch["image"].dtype == np.float32
    assert (batch["image"] == batch["mask"]).all()
