import pytest

pytest.importorskip("torch")

import numpy as np
import torch

from pyecho.demo.augment import shift_and_rotate


def batch_of(count, channels=1):
    image = np.random.default_rng(0).integers(0, 256, (count, channels, 16, 16), np.uint8)
    return {"image": torch.from_numpy(image), "label": torch.arange(count)}


def moved(batch, seed=1):
    return shift_and_rotate(batch, np.random.default_rng(seed))


def test_the_generator_alone_decides_and_copies_of_one_image_move_apart():
    batch = batch_of(8, channels=3)
    batch["image"][1] = batch["image"][0]
    batches = [batch | {"image": batch["image"].clone()} for _ in range(3)]
    first, again, other = map(moved, batches, (1, 1, 2))
    assert (first["image"].shape, first["image"].dtype) == ((8, 3, 16, 16), torch.uint8)
    assert first["label"].tolist() == list(range(8))
    assert torch.equal(first["image"], again["image"])
    assert not torch.equal(first["image"], other["image"])
    assert not torch.equal(first["image"][0], first["image"][1])


def test_an_image_moves_no_further_than_allowed():
    image = torch.zeros(64, 1, 16, 16, dtype=torch.uint8)
    image[:, :, 7:9, 7:9] = 255
    rows = moved({"image": image, "label": torch.zeros(64)})["image"].sum(dim=(1, 3)).double()
    centre = (rows * torch.arange(16)).sum(dim=1) / rows.sum(dim=1)
    assert 0.5 < (centre - 7.5).abs().max() < 3.5


def test_numpy_images_are_moved_in_place():
    image = batch_of(4)["image"].numpy()
    before = image.copy()
    assert moved({"image": image, "label": np.arange(4)})["image"] is image
    assert not np.array_equal(image, before)
