"""Labelled images: a folder with one sub-folder per class, split into training and test images."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from pyecho.items.spec import Field
from pyecho.tools.arguments import CommandError

TEST_SHARE = 0.22
MIN_TRAINING_IMAGES = 256
_SIDES = (16, 32)
_LARGEST = 4  # times the sides of the network's images
_GREY_MODES = {"1", "L", "LA", "I", "I;16", "F"}


class LabelledPath(NamedTuple):
    """The path of an image and its class."""

    path: Path
    label: int


@dataclass(frozen=True)
class ImageSet:
    """Images of any size in sub-folders of `root`, divided into a training and a test part.

    Labels are indices into `classes`. `shape`: channels, height and width of what the network sees,
    which is a part of an image, or all of it.
    """

    root: Path
    classes: Sequence[str]
    shape: tuple[int, int, int]
    train: Sequence[LabelledPath]
    test: Sequence[LabelledPath]

    @property
    def field(self) -> Field:
        """The field of a decoded image."""
        channels, height, width = self.shape
        most = channels * _LARGEST * height * _LARGEST * width
        return Field((None, None, channels), np.uint8, max_bytes=most)


def write_digits(root: Path) -> None:
    """Store the handwritten digits of scikit-learn as PNG files, in a new folder for each digit."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    pixels = np.round(digits.images * (255 / digits.images.max())).astype(np.uint8)
    for digit in np.unique(digits.target):
        (root / str(digit)).mkdir()
    for index, (image, digit) in enumerate(zip(pixels, digits.target, strict=True)):
        Image.fromarray(image).save(root / str(digit) / f"{index:04d}.png")


def read_folder(root: Path) -> ImageSet:
    """List the images of each sub-folder, a class, and split them into training and test images.

    The split is the same on every call. Skips hidden files, and files without the suffix of an
    image. Raises `CommandError` if there are no classes, too few images, or files that are none.
    """
    try:
        folders = [path for path in sorted(root.iterdir()) if path.is_dir()]
        by_class = {folder.name: images for folder in folders if (images := _images_in(folder))}
    except OSError as error:
        raise CommandError(
            f"--images needs a folder with one sub-folder of images per class, but {root} cannot "
            f"be listed ({error}): check the path and its permissions"
        ) from error
    train: list[LabelledPath] = []
    test: list[LabelledPath] = []
    rng = np.random.default_rng(0)
    for label, files in enumerate(by_class.values()):
        order = [LabelledPath(files[index], label) for index in rng.permutation(len(files))]
        held_out = round(TEST_SHARE * len(order))
        test += order[:held_out]
        train += order[held_out:]
    if len(by_class) < 2 or len(train) < MIN_TRAINING_IMAGES:
        raise CommandError(
            f"--images {root} needs sub-folders of images, one for each of two classes or more, "
            f"with {MIN_TRAINING_IMAGES / (1 - TEST_SHARE):.0f} images in all, but has "
            f"{len(by_class)} with {len(train) + len(test)} images: add images, or leave --images "
            "out to train on digits"
        )
    return ImageSet(root, list(by_class), _common_shape([*train, *test]), train, test)


def decode(
    path: Path, shape: tuple[int, int, int], content: bytes | None = None
) -> NDArray[np.uint8]:
    """Decode an image, or its `content`: rows, columns, and the channels of `shape`.

    Images of more than four times the height or width of `shape` are made smaller.
    """
    channels, height, width = shape
    mode, most = "L" if channels == 1 else "RGB", (_LARGEST * width, _LARGEST * height)
    with _opened(path, content) as image:
        image.draft(mode, most)  # a JPEG is decoded at a half, a quarter or an eighth
        pixels = image.convert(mode)
        pixels.thumbnail(most)
    return np.asarray(pixels).reshape(pixels.height, pixels.width, channels)


@contextmanager
def _opened(path: Path, content: bytes | None = None) -> Iterator[Image.Image]:
    """Open an image; raise `CommandError` with its path if it turns out to be broken."""
    try:
        with Image.open(path if content is None else io.BytesIO(content)) as image:
            yield image
    # Pillow's decoders raise all of these.
    except (
        OSError,
        ValueError,
        SyntaxError,
        EOFError,
        struct.error,
        Image.DecompressionBombError,
    ) as error:
        unknown = isinstance(error, UnidentifiedImageError)
        why = "its content is of no known format" if unknown else error
        raise CommandError(
            f"--images needs whole, readable images, but {path} cannot be decoded ({why}): "
            "replace the file, or remove it"
        ) from error


def _images_in(folder: Path) -> list[Path]:
    if folder.name.startswith("."):
        return []
    suffixes = Image.registered_extensions()
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in suffixes and not path.name.startswith(".") and path.is_file()
    )


def _common_shape(images: Sequence[LabelledPath]) -> tuple[int, int, int]:
    """Choose what the network sees. Small images train faster."""
    longest = 0
    grey = True
    for image in images:
        with _opened(image.path) as header:
            longest = max(longest, *header.size)
            grey = grey and header.mode in _GREY_MODES
    side = next((side for side in _SIDES if longest <= side), _SIDES[-1])
    return (1 if grey else 3, side, side)
