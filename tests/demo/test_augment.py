import pytest

pytest.importorskip("torch")

import numpy as np
import torch

from pyecho.demo.augment import shift_and_rotate


def batch_of(count, channels=1, seed=0):
    image = np.random.default_rng(seed).integers(0, 256, (count, channels, 16, 16), np.uint8)
    return {"image": torch.from_numpy(image), "label": torch.arange(count)}


def test_shape_dtype_and_labels_stay():
    batch = shift_and_rotate(batch_of(5, channels=3), np.random.default_rng(1))
    assert batch["image"].shape == (5, 3, 16, 16)
    assert batch["image"].dtype == torch.uint8
    assert batch["label"].tolist() == [0, 1, 2, 3, 4]


def test_the_generator_alone_decides():
    first = shift_and_rotate(batch_of(8), np.random.default_rng(1))["image"]
    again = shift_and_rotate(batch_of(8), np.random.default_rng(1))["image"]
    other = shift_and_rotate(batch_of(8), np.random.default_rng(2))["image"]
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_copies_of_one_image_move_apart():
    batch = batch_of(2)
    batch["image"][1] = batch["image"][0]
    moved = shift_and_rotate(batch, np.random.default_rng(1))["image"]
    assert not torch.equal(moved[0], moved[1])


def test_an_image_moves_no_further_than_allowed():
    image = torch.zeros(64, 1, 16, 16, dtype=torch.uint8)
    image[:, :, 7:9, 7:9] = 255
    batch = {"image": image, "label": torch.zeros(64)}
    moved = shift_and_rotate(batch, np.random.default_rng(1))["image"]
    rows = moved.sum(dim=(1, 3), dtype=torch.float64)
    centre = (rows * torch.arange(16)).sum(dim=1) / rows.sum(dim=1)
    assert (centre - 7.5).abs().max() < 3.5
    assert (centre - 7.5).abs().max() > 0.5


def test_numpy_images_are_moved_in_place():
    image = batch_of(4)["image"].numpy()
    before = image.copy()
    batch = shift_and_rotate({"image": image, "label": np.arange(4)}, np.random.default_rng(1))
    assert batch["image"] is image
    assert not np.array_equal(image, before)
