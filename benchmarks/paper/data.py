"""The data: Fashion-MNIST from a package of Debian's, and the sources of Python's own library."""

from __future__ import annotations

import gzip
import hashlib
import subprocess
import sysconfig
import tempfile
from pathlib import Path

import numpy as np
from common import ROOT
from numpy.typing import NDArray

FOLDER = ROOT / "build" / "paper"
PACKAGE = "dataset-fashion-mnist"
INSIDE_PACKAGE = Path("usr/share/datasets/fashion-mnist")
HELD_OUT_EVERY = 10
"""One of this many files is held out."""
LEFT_OUT_FOLDERS = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
"""Left out, because not every installation has the tests, and other packages differ as well."""


def fashion_folder() -> Path:
    """Return the folder with the files of Fashion-MNIST.

    Where they are not installed, Debian's package is fetched and unpacked, for which no privileges
    are needed.
    """
    unpacked = FOLDER / "debian"
    for root in (Path("/"), unpacked):
        if (root / INSIDE_PACKAGE).is_dir():
            return root / INSIDE_PACKAGE
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        try:
            subprocess.run(["apt-get", "download", PACKAGE], cwd=folder, check=True)
            (package,) = Path(folder).glob("*.deb")
            subprocess.run(["dpkg-deb", "-x", package, f"{folder}/all"], check=True)
        except (OSError, subprocess.CalledProcessError, ValueError) as error:
            raise SystemExit(
                f"Fashion-MNIST is needed, and apt-get could not fetch {PACKAGE} ({error}): "
                f"install it, or put its four files into {unpacked / INSIDE_PACKAGE}"
            ) from error
        Path(folder, "all").rename(unpacked)
    return unpacked / INSIDE_PACKAGE


def read_fashion(part: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the images, with a channel axis, and the labels of "train" or "t10k"."""

    def read(name: str, header_bytes: int) -> NDArray[np.uint8]:
        content = gzip.decompress((fashion_folder() / f"{part}-{name}-ubyte.gz").read_bytes())
        return np.frombuffer(content, np.uint8, offset=header_bytes)

    images = read("images-idx3", 16).reshape(-1, 1, 28, 28)
    return images, read("labels-idx1", 8).astype(np.int64)


def text_windows(
    length: int, count: int, held_out: int
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return pieces of the standard library's modules to train on, and others to test with.

    A hash of each file's relative path decides whether it is held out, so that the split does not
    depend on the other files.
    """
    root = Path(sysconfig.get_path("stdlib"))
    ranked = []
    for path in root.rglob("*.py"):
        relative = path.relative_to(root)
        if not LEFT_OUT_FOLDERS.intersection(relative.parts):
            ranked.append((hashlib.sha256(relative.as_posix().encode()).digest(), path))
    ranked.sort()
    train = [path for digest, path in ranked if digest[-1] % HELD_OUT_EVERY]
    tests = [path for digest, path in ranked if digest[-1] % HELD_OUT_EVERY == 0]
    return _pieces(train, length, count), _pieces(tests, length, held_out)


def _pieces(files: list[Path], length: int, count: int) -> NDArray[np.uint8]:
    """Return `count` pieces of `length` bytes, spread over all files at random."""
    text = np.frombuffer(b"".join(path.read_bytes() for path in files), np.uint8)
    starts = np.random.default_rng(0).permutation(len(text) // length)[:count] * length
    return text[starts[:, None] + np.arange(length)]


def fingerprint(*arrays: NDArray[np.generic]) -> str:
    """Return a short hash that distinguishes results of different data."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:12]
