"""JPEGs decoded by two workers, cropped, mirrored and normalised: the whole time of an epoch.

Images of sizes like ImageNet's, and of one size with the same mean area, in memory. Rows: bare
decoding in as many processes; `pyecho.ops` at e = 1, 2 and 4; a `DataLoader` whose workers also
transform by torchvision v2, if it is installed. Processor time is of the loader's process and of
its workers apart, which tells more than the clock where other programs run.
"""

from __future__ import annotations

import gc
import io
import multiprocessing
import resource
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from common import finish, new_parser, new_report, sample
from PIL import Image

import pyecho.torch
from pyecho import ops
from pyecho.bench.row import Row
from pyecho.bench.sampling import turns

WORKERS, BATCH, KEPT, SIZE = 2, 64, 256, 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FACTORS = (1, 2, 4)
FIELD = pyecho.Field((None, None, 3), "uint8", max_bytes=4 << 20)


class Images:
    """A map-style dataset of decoded JPEGs, of one size or of several."""

    def __init__(self, items: int, *, several: bool, transform: Any = None) -> None:
        rng = np.random.default_rng(0)
        areas = rng.lognormal(sigma=0.5, size=KEPT) if several else np.ones(KEPT)
        areas *= 500 * 375 / areas.mean()
        shapes = rng.choice([4 / 3, 3 / 4, 1.0], size=KEPT) if several else np.full(KEPT, 4 / 3)
        self.files = [_jpeg(rng, *pair) for pair in zip(areas, shapes, strict=True)]
        self.items, self.transform = items, transform
        self.field = FIELD if several else None

    def __len__(self) -> int:
        """Return the number of items."""
        return self.items

    def __getitem__(self, index: int) -> Any:
        """Return an image."""
        image = Image.open(io.BytesIO(self.files[index % KEPT])).convert("RGB")
        return np.asarray(image) if self.transform is None else self.transform(image)


def _jpeg(rng: np.random.Generator, area: float, shape: float) -> bytes:
    width, height = round((area * shape) ** 0.5), round((area / shape) ** 0.5)
    coarse = rng.integers(0, 256, (height // 8, width // 8, 3), np.uint8)
    image = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    noise = rng.integers(-6, 7, (height, width, 3))
    file = io.BytesIO()
    noisy = (np.asarray(image) + noise).clip(0, 255).astype(np.uint8)
    Image.fromarray(noisy).save(file, "JPEG", quality=90)
    return file.getvalue()


class Took(NamedTuple):
    """Seconds of an epoch, and of the processor in this process and in its children."""

    wall: float
    parent: float
    children: float


def took(run: Callable[[], None]) -> Took:
    """Return what a run took, its processes waited for."""

    def now() -> tuple[float, ...]:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return time.perf_counter(), *(each.ru_utime + each.ru_stime for each in used)

    gc.collect()
    began = now()
    run()
    return Took(*(end - begin for begin, end in zip(began, now(), strict=True)))


def decode(images: Images) -> None:
    """Decode all images in processes, and send none back."""

    def part(first: int) -> None:
        for index in range(first, len(images), WORKERS):
            images[index]

    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=part, args=(first,)) for first in range(WORKERS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


def echo(images: Images, factor: int) -> None:
    """Read an epoch by pyecho."""
    transform = [
        ops.RandomResizedCrop(SIZE),
        ops.RandomFlip(1),
        ops.Normalize(MEAN, STD),
        ops.ToCHW(),
    ]
    options: dict[str, Any] = {"batch_size": BATCH, "num_workers": WORKERS, "shuffle": True}
    loader = pyecho.torch.EchoLoader(images, factor, ops=transform, fields=images.field, **options)
    with loader:
        for _ in loader:
            pass


def torchvision(images: Images, factor: int) -> None:
    """Read as many uses by a DataLoader."""
    from torch.utils.data import DataLoader

    loader = DataLoader(images, BATCH, shuffle=True, num_workers=WORKERS, persistent_workers=True)  # type: ignore[arg-type]
    for _ in range(factor):
        for _ in loader:
            pass


def torchvision_transform() -> Any:
    """Return the same operations of torchvision v2; None where it is not installed."""
    try:
        import torch
        from torchvision.transforms import v2  # type: ignore[import-not-found]
    except ImportError:
        return None
    crop = v2.RandomResizedCrop(SIZE, antialias=True)
    scaled = v2.ToDtype(torch.float32, scale=True)
    flip, normalised = v2.RandomHorizontalFlip(), v2.Normalize(MEAN, STD)
    return v2.Compose([v2.ToImage(), crop, flip, scaled, normalised])


def main() -> None:
    """Measure in turn, and print the table."""
    options = new_parser(__doc__, rounds=5, items=3000).parse_args()
    items = 2 * BATCH if options.quick else options.items
    report = new_report("jpegs", "JPEGs by two workers", options, items=items)
    theirs, runs = torchvision_transform(), dict[str, Callable[[], None]]()
    for sizes in ("one size", "several sizes"):
        images = Images(items, several=sizes == "several sizes")
        runs[f"{sizes}, bare"] = partial(decode, images)
        for factor in FACTORS:
            runs[f"{sizes}, e = {factor}"] = partial(echo, images, factor)
            if theirs is not None:
                augmented = Images(items, several=sizes == "several sizes", transform=theirs)
                runs[f"{sizes}, torchvision, e = {factor}"] = partial(
                    torchvision, augmented, factor
                )
    all_took = turns(
        "JPEGs", options.rounds, {name: partial(took, run) for name, run in runs.items()}
    )
    for title, wanted in (("Images a second, whole wall time", "wall"), ("Processor, ms", "")):
        rows = []
        for name in runs:
            sizes, _, rest = name.partition(", ")
            found = all_took[name]
            if wanted:
                against = f"{sizes}, bare" if sizes == "one size" else f"one size, {rest}"
                limit = sample(items / each.wall for each in all_took[against])
                speed = sample(items / each.wall for each in found)
                rows.append(Row(name, speed, "images/s", limit, against))
                continue
            for part in ("parent", "children"):
                ms = sample(1e3 * getattr(each, part) / items for each in found)
                rows.append(Row(f"{name}: {part}", ms, "ms an image"))
        report.add(title, rows)
    finish(report, options)


if __name__ == "__main__":
    main()
