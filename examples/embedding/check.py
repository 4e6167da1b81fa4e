"""Run the examples on data made here, and check what they print: python check.py BUILD_FOLDER."""

import io
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from PIL import Image

import pyecho

BUILD = Path(sys.argv[1])
EXAMPLES = Path(__file__).parent
HEIGHT, WIDTH = 40, 56


def run(*command):
    """Return what a program prints."""
    done = subprocess.run(
        [str(part) for part in command], check=True, capture_output=True, text=True
    )
    return done.stdout


def write_shard(path, first, count, *, kind="png", broken=None):
    """Write a tar file of images, and return these images."""
    random = np.random.default_rng(abs(first))
    images = []
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for label in range(first, first + count):
            images.append(random.integers(0, 255, (HEIGHT, WIDTH, 3), dtype=np.uint8))
            file = io.BytesIO()
            Image.fromarray(images[-1]).save(file, kind)
            data = file.getvalue()[:100] if label == broken else file.getvalue()
            for name, content in ((f"{label:05}.{kind}", data), (f"{label:05}.cls", b"%d" % label)):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return images


def check_first():
    """C and C++: threads that put numbers; docs/embedding.md includes the C++."""
    for program in ("first_echo", "first_echo_cpp"):
        assert run(BUILD / program) == f"2000 rows, sum {2 * sum(range(1000))}\n"


def check_rust():
    """Rust: the same."""
    assert run(BUILD / "rust_echo") == f"2000 rows, sum {2 * sum(range(1000))}\n"


def check_ctypes():
    """Python, by ctypes."""
    out = run(sys.executable, EXAMPLES / "ctypes_echo.py", 500)
    assert out == f"1000 rows, sum {2 * sum(range(500))}\n", out


def check_cython():
    """Cython: a source."""
    sys.path.insert(0, str(BUILD))
    from waves import Waves

    loader = pyecho.EchoLoader(Waves(500), 2, batch_size=32, shuffle_buffer=100, with_info=True)
    for _ in range(2):
        uses = Counter()
        for batch, info in loader:
            assert np.allclose(
                batch["wave"],
                np.sin(0.001 * np.outer(info.source_index, np.arange(256))),
                atol=1e-5,
            )
            uses.update(info.source_index.tolist())
        assert uses == dict.fromkeys(range(500), 2)
    next(iter(loader))  # an epoch that ends early
    loader.close()


def check_npy(folder):
    """C: the rows of a file, each twice in each epoch."""
    for dtype, shape in ((np.uint8, (1000, 33)), (np.float64, (77,)), (np.int16, (300, 4, 5))):
        rows = np.random.default_rng(0).integers(0, 100, shape).astype(dtype)
        np.save(folder / "rows.npy", rows)
        total = 2 * int(rows.view(np.uint8).astype(np.int64).sum())
        lines = run(BUILD / "npy_echo", folder / "rows.npy", 2).splitlines()
        expected = [f"epoch {epoch}: {2 * len(rows)} rows, sum {total}" for epoch in range(2)]
        assert lines == expected, (lines, expected)


def check_tar(folder):
    """C++: images out of tar files, from C++ and from Python."""
    sys.path.insert(0, str(BUILD))
    from tar_shards import TarShards

    paths = [str(folder / f"{i}.tar") for i in range(3)]
    images = [image for i, path in enumerate(paths) for image in write_shard(path, 20 * i, 20)]
    out = run(BUILD / "tar_echo", HEIGHT, WIDTH, 2, 3, *paths)
    assert out.startswith(f"180 rows, sum of labels {3 * sum(range(60))},"), out

    def epoch(threads):
        source = TarShards(paths, height=HEIGHT, width=WIDTH, threads=threads)
        loader = pyecho.EchoLoader(source, 2, batch_size=8, shuffle_buffer=16)
        return list(loader)

    batches = epoch(1)
    uses = Counter(int(label) for batch in batches for label in batch["label"])
    assert uses == dict.fromkeys(range(60), 2), uses
    for batch in batches:
        for image, label in zip(batch["image"], batch["label"], strict=True):
            assert (image == images[label]).all()
    for one, other in zip(batches, epoch(3), strict=True):  # the order is that of the files
        assert (one["label"] == other["label"]).all()

    write_shard(folder / "photos.tar", 0, 5, kind="jpeg")
    source = TarShards([str(folder / "photos.tar")], height=HEIGHT, width=WIDTH)
    assert sum(len(batch["label"]) for batch in pyecho.EchoLoader(source, 2, batch_size=4)) == 10

    for broken, kind in ((7, "png"), (3, "jpeg")):
        write_shard(folder / "broken.tar", 0, 20, kind=kind, broken=broken)
        source = TarShards([str(folder / "broken.tar")], height=HEIGHT, width=WIDTH)
        message = ""
        try:
            for _ in pyecho.EchoLoader(source, 2, batch_size=4):
                pass
        except RuntimeError as error:
            message = str(error)
        assert f"{broken:05}.{kind}" in message, message

    # Files that are no shards are refused by name, and never read in part.
    shard = Path(paths[0]).read_bytes()
    first = 512 + (int(shard[124:135], 8) + 511) // 512 * 512  # bytes of its first member
    for wrong, reason in (
        (shard[: len(shard) // 2 // 512 * 512 + 100], "cut off"),
        (shard[:124] + b"77777777777\0" + shard[136:], "damaged"),  # the first size
        (shard[:first] + bytes(1024), "its label"),
    ):
        (folder / "wrong.tar").write_bytes(wrong)
        source = TarShards([str(folder / "wrong.tar")], height=HEIGHT, width=WIDTH)
        message = ""
        try:
            list(pyecho.EchoLoader(source, 1, batch_size=4))
        except RuntimeError as error:
            message = str(error)
        assert "wrong.tar" in message, message
        assert reason in message, message

    # A consumer that fails ends the program, though its producers wait for room.
    write_shard(folder / "negative.tar", -1, 400)
    failed = subprocess.run(
        [*map(str, (BUILD / "tar_echo", HEIGHT, WIDTH, 2, 3)), str(folder / "negative.tar")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert failed.returncode == 1, failed
    assert "a label is -1" in failed.stderr, failed

    loader = pyecho.EchoLoader(TarShards(paths, height=HEIGHT, width=WIDTH), 2, batch_size=4)
    for _ in range(5):  # epochs that end early
        next(iter(loader))
    loader.close()


def check_numba():
    """Numba: a compiled producer."""
    lines = run(sys.executable, EXAMPLES / "numba_source.py", 500).splitlines()
    assert [line.split(",")[0] for line in lines] == [f"epoch {e}: 1000 rows" for e in range(2)], (
        lines
    )


check_first()
print("first_echo: fine")
check_ctypes()
print("ctypes_echo: fine")
if (BUILD / "rust_echo").exists():
    check_rust()
    print("rust_echo: fine")
if list(BUILD.glob("waves.*.so")):
    check_cython()
    print("waves: fine")
with tempfile.TemporaryDirectory() as temporary:
    check_npy(Path(temporary))
    print("npy_echo: fine")
    if (BUILD / "tar_echo").exists():
        check_tar(Path(temporary))
        print("tar_shards: fine")
check_numba()
print("numba_source: fine")
