"""The data: Fashion-MNIST from a package of Debian's, and the sources of Python's own library."""

from __future__ import annotations

import gzip
import hashlib
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

PACKAGE = "dataset-fashion-mnist"
INSIDE_PACKAGE = Path("usr/share/datasets/fashion-mnist")
PARTS = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
HELD_OUT_EVERY = 10
"""One of this many files is held out."""
LEFT_OUT_FOLDERS = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
"""Left out, because not every installation has the tests, and other packages differ as well."""


class DataError(Exception):
    """Data are not available; the message says how to get them."""


def fashion_folder(given: Path | None, cache: Path) -> Path:
    """Return the folder with the files of Fashion-MNIST; fetch them if they are nowhere.

    Debian's package is unpacked, not installed, so that no privileges are needed.
    """
    if given is not None:
        if not _complete(given):
            raise DataError(
                f"--fashion-mnist {given} needs the four files {', '.join(map(_file, PARTS))}, "
                "packed with gzip as they are published: check the path"
            )
        return given
    unpacked = cache / "fashion-mnist"
    for folder in (Path("/") / INSIDE_PACKAGE, unpacked):
        if _complete(folder):
            return folder
    _fetch(unpacked)
    return unpacked


def _file(part: str) -> str:
    return f"{part}-ubyte.gz"


def _complete(folder: Path) -> bool:
    return all((folder / _file(part)).is_file() for part in PARTS)


def _fetch(target: Path) -> None:
    remedy = (
        f"install Debian's package {PACKAGE}, or name a folder with the four files "
        f"({_file(PARTS[0])} and so on) with --fashion-mnist DIR"
    )
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            raise DataError(f"Fashion-MNIST cannot be fetched without {program}: {remedy}")
    target.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder as the target, so that it can be moved there when it is complete.
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        folder = Path(name)
        try:
            _call("apt-get", "download", PACKAGE, folder=folder)
            (package,) = folder.glob("*.deb")
            _call("dpkg-deb", "-x", package.name, "unpacked", folder=folder)
        except (subprocess.CalledProcessError, ValueError) as error:
            said = getattr(error, "stderr", "") or str(error)
            raise DataError(
                f"apt-get could not fetch {PACKAGE} ({said.strip()}): {remedy}"
            ) from error
        shutil.move(folder / "unpacked" / INSIDE_PACKAGE, target)
    if not _complete(target):
        raise DataError(f"the package {PACKAGE} does not hold what it should: {remedy}")


def _call(*command: str, folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read a file of bytes in the IDX format: a magic number, the shape, then the values."""
    content = gzip.decompress(path.read_bytes())
    axes = content[3]
    if content[:3] != b"\0\0\x08" or axes not in (1, 3):
        raise DataError(f"{path} is not in the IDX format: fetch it again")
    shape = np.frombuffer(content, ">u4", count=axes, offset=4)
    values: NDArray[np.uint8] = np.frombuffer(content, np.uint8, offset=4 + 4 * axes)
    return values.reshape(shape)


def read_fashion(folder: Path, part: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the images, with a channel axis, and the labels of "train" or "t10k"."""
    images = read_idx(folder / _file(f"{part}-images-idx3"))
    labels = read_idx(folder / _file(f"{part}-labels-idx1"))
    return images[:, None], labels.astype(np.int64)


def text_files(folder: Path | None) -> tuple[list[Path], list[Path]]:
    """Return the files to train on and the held-out ones, each in a fixed order.

    A hash of each file's relative path decides, so that the split does not depend on the rest of
    the folder. The default folder is that of the standard library's modules.
    """
    suffixes = {".py"} if folder is None else {".py", ".txt", ".md", ".rst"}
    root = Path(sysconfig.get_path("stdlib")) if folder is None else folder
    if not root.is_dir():
        raise DataError(f"there is no folder {root}: name one with --text DIR")
    ranked = []
    for path in root.rglob("*"):
        relative = path.relative_to(root)
        if path.suffix in suffixes and not LEFT_OUT_FOLDERS.intersection(relative.parts):
            ranked.append((hashlib.sha256(relative.as_posix().encode()).digest(), path))
    ranked.sort()
    train = [path for digest, path in ranked if digest[-1] % HELD_OUT_EVERY]
    held_out = [path for digest, path in ranked if digest[-1] % HELD_OUT_EVERY == 0]
    if not train or not held_out:
        raise DataError(
            f"{root} has {len(ranked)} files {', '.join(sorted(suffixes))}, too few to hold one "
            "in ten out: name a larger folder with --text DIR"
        )
    return train, held_out


def read_windows(files: Sequence[Path], length: int, count: int, seed: int) -> NDArray[np.uint8]:
    """Return `count` pieces of `length` bytes, spread over all files at random."""
    text = np.frombuffer(b"".join(path.read_bytes() for path in files), np.uint8)
    if len(text) < 2 * length * count:
        raise DataError(
            f"{2 * length * count:,} bytes of text are needed, and there are {len(text):,}: "
            "name a larger folder with --text DIR"
        )
    starts = np.random.default_rng(seed).permutation(len(text) // length)[:count] * length
    windows: NDArray[np.uint8] = text[starts[:, None] + np.arange(length)]
    return windows


def fingerprint(*arrays: NDArray[np.generic]) -> str:
    """Return a short hash that distinguishes results of different data."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:12]
