"""Crops of albumentations for each use, with random numbers of pyecho's."""

import albumentations
import numpy as np

import pyecho

images = np.random.default_rng(0).integers(
    0, 256, (64, 32, 32, 3), "uint8"
)  # decoded, not augmented


class Augment:  # an object, of which each of `augment_workers` has a copy: a Compose has a state
    def __init__(self):
        self.transform = albumentations.Compose(
            [
                albumentations.RandomCrop(24, 24),
                albumentations.HorizontalFlip(),
                albumentations.Normalize(),
            ]
        )

    def __call__(self, batch, rng):  # each use has its own crop, which is the same in every run
        pictures, labels = batch
        self.transform.set_random_seed(int(rng.integers(2**32)))
        return np.stack([self.transform(image=picture)["image"] for picture in pictures]), labels


loader = pyecho.EchoLoader(
    (images, np.arange(64)), 3, batch_size=16, augment=Augment(), augment_workers=2
)
first = list(loader)
assert first[0][0].shape == (16, 24, 24, 3)
assert first[0][0].dtype == np.float32
loader.set_epoch(0)
for batch, same in zip(first, loader, strict=True):
    assert np.array_equal(batch[0], same[0])
    assert np.array_equal(batch[1], same[1])
