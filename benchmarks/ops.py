"""Costs of `pyecho.ops` through a whole loader: against other tools, and against bare copies.

Images: a random resized crop to 224 x 224, a mirror image half of the time, normalised to float32,
channels first, of decoded images of 400 x 500. The contestants are `ops`, torchvision v2 (if it is
installed) and Pillow with NumPy; these two in `collate_fn`, which spares them the copy into a
batch. All echo the same items as often, from the same pool.

Windows: a crop and a patch through `ops`, against a loop that copies each item into a pool
and the same windows out of it, with NumPy's assignment.

Speeds are those of a core: uses for each second of processor time, of all threads together, so
that other programs on the machine count little.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from common import finish, new_parser, new_report

import pyecho
from pyecho import ops
from pyecho.bench.row import Row
from pyecho.bench.sampling import interleaved

SIZE, MEAN, STD = 224, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IMAGE = (400, 500, 3)
FACTOR = 4
BATCH_SIZE = 32
IMAGES, POOL = 96, 64


WINDOWS: dict[str, Any] = {  # shape, sizes, items, factor, type, mirrored, target
    "224 x 224 of 400 x 500": (IMAGE, (SIZE, SIZE), 96, 8, "uint8", False, 0.9),
    "the same, mirrored half of the time": (IMAGE, (SIZE, SIZE), 96, 8, "uint8", True, 0.5),
    "10 of 40 frames of 96 x 96": ((40, 96, 96, 3), (10,), 64, 16, "uint8", False, 0.9),
    "96 x 96 x 96 of 512 x 512 x 200": ((512, 512, 200), (96,) * 3, 2, 64, "int16", False, 0.9),
}


def uses_per_second(loader: pyecho.EchoLoader, uses: int) -> float:
    """Take all batches of an epoch and drop them; return uses for each second of a core."""
    begun = time.process_time()
    for batch in loader:
        del batch
    return uses / (time.process_time() - begun)


# ---------------------------------------------------------------- images


def natively(images: Sequence[Any]) -> pyecho.EchoLoader:
    """Return the loader with `ops`."""
    pipeline = [
        ops.RandomResizedCrop(SIZE),
        ops.RandomFlip(1),
        ops.Normalize(MEAN, STD),
        ops.ToCHW(),
    ]
    return echoed(images, ops=pipeline)


def by_torchvision(images: Sequence[Any]) -> pyecho.EchoLoader | None:
    """Return the loader with transforms of torchvision; None if it is not installed."""
    try:
        import torch
        from torchvision.transforms import v2
    except (ImportError, RuntimeError):  # also one that is not of torch's build
        return None
    torch.set_num_threads(1)
    transform = v2.Compose(
        [
            v2.RandomResizedCrop(SIZE, antialias=True),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
        ]
    )
    # Channels last in memory, as decoders make them: there its resizing of uint8 is fastest.
    tensors = [torch.from_numpy(image).permute(2, 0, 1) for image in images]
    return echoed(tensors, collate_fn=lambda many: torch.stack([transform(each) for each in many]))


def by_pillow(images: Sequence[Any]) -> pyecho.EchoLoader | None:
    """Return the loader with Pillow and NumPy; None if Pillow is not installed."""
    try:
        from PIL import Image
    except ImportError:
        return None
    rng = np.random.default_rng(0)
    scale = (1 / (255 * np.array(STD))).astype(np.float32)
    shift = (-np.array(MEAN) / STD).astype(np.float32)

    def collate(many: list[Any]) -> Any:
        rows = np.empty((len(many), 3, SIZE, SIZE), np.float32)
        for row, pixels in zip(rows, many, strict=True):
            box = drawn_box(rng, *pixels.shape[:2])
            image = Image.fromarray(pixels).resize((SIZE, SIZE), Image.Resampling.BILINEAR, box)
            if rng.random() < 0.5:
                image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
            row[...] = (np.asarray(image, np.float32) * scale + shift).transpose(2, 0, 1)
        return rows

    return echoed(images, collate_fn=collate)


def drawn_box(rng: np.random.Generator, rows: int, columns: int) -> tuple[int, int, int, int]:
    """Return the box of a random resized crop: left, top, right, bottom."""
    for _ in range(10):
        area = rows * columns * rng.uniform(0.08, 1)
        ratio = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        width, height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < width <= columns and 0 < height <= rows:
            top, left = rng.integers(rows - height + 1), rng.integers(columns - width + 1)
            return int(left), int(top), int(left) + width, int(top) + height
    return 0, 0, columns, rows


def echoed(items: Sequence[Any], **options: Any) -> pyecho.EchoLoader:
    """Return a loader over the items, with one thread."""
    return pyecho.EchoLoader(
        items, FACTOR, batch_size=BATCH_SIZE, shuffle_buffer=POOL, threads=1, **options
    )


def images_compared(rounds: int) -> tuple[list[Row], list[str]]:
    """Return a row for each other tool, and notes on those that are missing."""
    rng = np.random.default_rng(0)
    # Smooth, as photographs are; noise would take as long.
    ramps = np.arange(IMAGE[0])[:, None, None] + np.arange(IMAGE[1])[:, None]
    images = [(ramps * rng.uniform(0.1, 2, 3)).astype(np.uint8) for _ in range(IMAGES)]
    others = {"torchvision v2": by_torchvision(images), "Pillow and NumPy": by_pillow(images)}
    notes = [f"{name} is not installed" for name, loader in others.items() if loader is None]
    loaders = {"ops": natively(images)} | {
        name: loader for name, loader in others.items() if loader is not None
    }
    contestants = {
        name: partial(uses_per_second, loader, FACTOR * IMAGES) for name, loader in loaders.items()
    }
    rates = interleaved("images", rounds, contestants)
    for loader in loaders.values():
        loader.close()
    ours = rates.pop("ops")
    notes.append(f"ops: {1e6 / ours.median:,.0f} us of a core for an image, echo included")
    targets = {"torchvision v2": "at least 3x", "Pillow and NumPy": "at least 10x"}
    what = "random resized crop, flip, normalise, channels first"
    return [
        Row(what, ours, "images/s and core", theirs, name, target=targets[name])
        for name, theirs in rates.items()
    ] or [Row(what, ours, "images/s and core")], notes


# ---------------------------------------------------------------- windows


def bare_loop(
    items: Sequence[Any], sizes: tuple[int, ...], factor: int, pool_size: int, batch_size: int
) -> Callable[[], float]:
    """Return what copies items into a pool, and windows out of it into batches, in random order."""
    rng = np.random.default_rng(1)
    shape = items[0].shape
    pool = np.zeros((pool_size, *shape), items[0].dtype)
    batches = np.zeros((3, batch_size, *sizes, *shape[len(sizes) :]), items[0].dtype)
    pool[...], batches[...] = 1, 1  # every page is there
    uses = factor * len(items)
    rows = batches.reshape(-1, *batches.shape[2:])
    windows = []
    for use in range(uses):
        begins = [rng.integers(whole - part + 1) for whole, part in zip(shape, sizes, strict=False)]
        window = tuple(slice(at, at + part) for at, part in zip(begins, sizes, strict=True))
        windows.append((rows[use % len(rows)], pool[rng.integers(pool_size)][window]))

    def run() -> float:
        begun = time.process_time()
        for number, item in enumerate(items):
            pool[number % pool_size] = item
            for row, window in windows[number * factor : (number + 1) * factor]:
                row[...] = window
        return uses / (time.process_time() - begun)

    return run


def windows_compared(name: str, rounds: int) -> Row:
    """Return the row of one kind of window."""
    (shape, sizes, count, factor, dtype, mirrored, least), rng = (
        WINDOWS[name],
        np.random.default_rng(0),
    )
    items = [rng.integers(0, 256, shape, np.uint8).astype(dtype) for _ in range(count)]
    batch_size, pool = min(BATCH_SIZE, 4 * count), max(1, count * 2 // 3)
    crop: Any = ops.RandomCrop(sizes)
    if len(sizes) == 1:
        crop = ops.Window(range(sizes[0]), anchors=(0, -sizes[0]))
    operations = [crop, *([ops.RandomFlip(1)] if mirrored else [])]
    loader = pyecho.EchoLoader(
        items, factor, batch_size=batch_size, shuffle_buffer=pool, threads=1, ops=operations
    )
    contestants = {
        "ops": partial(uses_per_second, loader, factor * count),
        "bare": bare_loop(items, sizes, factor, pool, batch_size),
    }
    rates = interleaved(name, rounds, contestants)
    loader.close()
    ours, bare = rates["ops"], rates["bare"]
    what, target = f"{name}, e = {factor}", f"at least {least}x"
    return Row(what, ours, "windows/s and core", bare, "bare copies", target=target)


if __name__ == "__main__":
    options = new_parser(__doc__, rounds=7).parse_args()
    report = new_report("ops", "Operations behind the echo", options)
    rows, notes = images_compared(options.rounds)
    report.add("images of 400 x 500, e = 4", rows)
    for note in notes:
        report.note(note)
    for name in WINDOWS:
        gc.collect()
        report.add("windows", [windows_compared(name, options.rounds)])
    finish(report, options)
