"""Labelled images: a folder with one sub-folder per class, split into training and test images."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from pyecho.items.spec import Field
from pyecho.tools.arguments import CommandError

TEST_SHARE = 0.22
MIN_TRAINING_IMAGES = 256
_SIDES = (16, 32)
_LARGEST = 4  # times the sides of the network's images
# Pillow's decoders raise all of these for broken files.
DECODE_ERRORS = (
    OSError,
    ValueError,
    SyntaxError,
    EOFError,
    struct.error,
    Image.DecompressionBombError,
)
_GREY_MODES = {"1", "L", "LA", "I", "I;16", "F"}


@dataclass(frozen=True)
class LabelledPath:
    """The path of an image and its class."""

    path: Path
    label: int


@dataclass(frozen=True)
class ImageSet:
    """Images of any size, divided into a training and a test part.

    Parameters
    ----------
    root
        The folder that holds the class sub-folders.
    classes
        Their names; a label is an index into them.
    shape
        Channels, height and width of what the network sees: a part of an image, or all of it.
    train, test
        The images of either part.
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
    by_class = _files_by_class(root)
    train: list[LabelledPath] = []
    test: list[LabelledPath] = []
    rng = np.random.default_rng(0)
    for label, (name, files) in enumerate(by_class.items()):
        if len(files) < 2:
            raise CommandError(
                f"class {name!r} needs at least two images, found {len(files)}: add images to "
                f"{root / name}, or remove that folder"
            )
        order = [LabelledPath(files[index], label) for index in rng.permutation(len(files))]
        held_out = max(1, round(TEST_SHARE * len(order)))
        test += order[:held_out]
        train += order[held_out:]
    if len(train) < MIN_TRAINING_IMAGES:
        total = math.ceil(MIN_TRAINING_IMAGES / (1 - TEST_SHARE))
        raise CommandError(
            f"--images {root} needs at least {MIN_TRAINING_IMAGES} images for training, but "
            f"{len(train)} are left after {len(test)} are held out for the test: add images until "
            f"there are about {total} in all, or leave --images out to train on digits"
        )
    return ImageSet(root, list(by_class), _common_shape([*train, *test]), train, test)


def decode(file: object, shape: tuple[int, int, int]) -> NDArray[np.uint8]:
    """Decode an image, a path or a binary file: rows, columns, and the channels of `shape`.

    Images of more than four times the height or width of `shape` are made smaller.
    """
    channels, height, width = shape
    mode, most = "L" if channels == 1 else "RGB", (_LARGEST * width, _LARGEST * height)
    with Image.open(file) as image:  # type: ignore[arg-type]
        image.draft(mode, most)  # a JPEG is decoded at a half, a quarter or an eighth
        pixels = image.convert(mode)
    pixels.thumbnail(most)
    return np.asarray(pixels).reshape(pixels.height, pixels.width, channels)


def decode_all(
    images: Sequence[LabelledPath], shape: tuple[int, int, int]
) -> list[NDArray[np.uint8]]:
    """Decode local images; `CommandError` names a broken one."""
    decoded = []
    for image in images:
        try:
            decoded.append(decode(image.path, shape))
        except DECODE_ERRORS as error:
            raise unreadable(image.path, error) from error
    return decoded


def unreadable(path: Path, error: Exception) -> CommandError:
    """Return the error that names a file which is not the image it should be."""
    unknown = isinstance(error, UnidentifiedImageError)
    why = "its content is of no known format" if unknown else _reason(error)
    return CommandError(
        f"--images needs whole, readable images, but {path} cannot be decoded ({why}): "
        "replace the file, or remove it"
    )


def _reason(error: Exception) -> str:
    """Return the system's reason for an error, without the path, which the message names anyway."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _files_by_class(root: Path) -> dict[str, list[Path]]:
    """List the images of every sub-folder that has any, and insist on at least two of these."""
    try:
        if not root.is_dir():
            raise CommandError(
                "--images needs a folder with one sub-folder of images per class, but "
                f"{root} is not a folder: check the path"
            )
        by_class = {
            folder.name: files
            for folder in sorted(root.iterdir())
            if folder.is_dir()
            and not folder.name.startswith(".")
            and (files := _image_files(folder))
        }
        loose = 0 if by_class else len(_image_files(root))
    except OSError as error:
        raise CommandError(
            f"--images {root} needs folders that can be listed, but {error.filename} cannot "
            f"({_reason(error)}): change its permissions, or name another folder"
        ) from error
    if len(by_class) < 2:
        found = f"only {next(iter(by_class))!r}" if by_class else "none"
        if loose:
            found += f" but {loose} images outside any"
        raise CommandError(
            f"--images {root} needs at least two class sub-folders with images, found {found}: "
            "put the images of each class into a sub-folder of their own"
        )
    return by_class


def _image_files(folder: Path) -> list[Path]:
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
        try:
            with Image.open(image.path) as header:
                longest = max(longest, *header.size)
                grey = grey and header.mode in _GREY_MODES
        except DECODE_ERRORS as error:
            raise unreadable(image.path, error) from error
    side = next((side for side in _SIDES if longest <= side), _SIDES[-1])
    return (1 if grey else 3, side, side)
