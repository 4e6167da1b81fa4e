"""Synthetic images, decoded on the CPU like the images of a training set."""

from __future__ import annotations

import io
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SIDE = 256
CROP = 224
IMAGES = 256
CLASSES = 1000
Image = NDArray[np.uint8]


class Codec(NamedTuple):
    """A form in which images are stored."""

    name: str
    encode: Callable[[Image], bytes]
    decode: Callable[[bytes], Image]


def codec() -> Codec:
    """Return JPEG if Pillow is installed, otherwise deflate, as in PNG."""
    try:
        from PIL import Image as Pillow
    except ImportError:
        return Codec(
            "deflate (Pillow is not installed)",
            lambda image: zlib.compress(image.tobytes(), 6),
            lambda data: np.frombuffer(zlib.decompress(data), np.uint8).reshape(SIDE, SIDE, 3),
        )

    def encode(image: Image) -> bytes:
        stream = io.BytesIO()
        Pillow.fromarray(image).save(stream, "JPEG", quality=90)
        return stream.getvalue()

    def decode(data: bytes) -> Image:
        return np.asarray(Pillow.open(io.BytesIO(data)), np.uint8)

    return Codec("JPEG, by Pillow", encode, decode)


def synthetic_images(count: int) -> list[Image]:
    """Return images of smooth shapes with some noise, which compress about as photographs do."""
    random = np.random.default_rng(2)
    y, x = np.mgrid[0:SIDE, 0:SIDE] / SIDE
    images = []
    for _ in range(count):
        image = random.normal(128, 12, (SIDE, SIDE, 3))
        for channel in range(3):
            a, b, phase = random.uniform(1, 30, 3)
            image[..., channel] += 60 * np.sin(a * x + b * y * y + phase)
        images.append(image.clip(0, 255).astype(np.uint8))
    return images


class DecodedBatches:
    """Endless batches of (images, labels), decoded on demand.

    Parameters
    ----------
    batch
        Images of a batch.
    workers
        Number of decoding processes, since threads would take the GIL from the training loop.
    work
        How often each image is decoded, to make the source slower.
    """

    def __init__(self, batch: int, workers: int = 1, work: int = 1) -> None:
        self.codec = codec()
        self.batch = batch
        self.seconds_of_batches: list[float] = []
        """Time of all batches made so far."""
        self._data = [self.codec.encode(image) for image in synthetic_images(IMAGES)]
        self.slowed(workers, work)

    def slowed(self, workers: int, work: int) -> None:
        """Change the speed, and start the processes."""
        self.workers, self.work = workers, work
        self._pool = ProcessPoolExecutor(workers, get_context("spawn"))

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown(cancel_futures=True)

    def __iter__(self) -> Iterator[tuple[Image, NDArray[np.int64]]]:
        """Decode."""
        start = 0
        while True:
            began = time.perf_counter()
            numbers = range(start, start + self.batch)
            images = np.empty((self.batch, 3, CROP, CROP), np.uint8)
            data = [self._data[number % IMAGES] for number in numbers]
            decoded = self._pool.map(_decoded, data, [self.work] * self.batch, chunksize=4)
            for row, image in zip(images, decoded, strict=True):
                row[...] = image
            labels = np.array(numbers, np.int64) % CLASSES
            self.seconds_of_batches.append(time.perf_counter() - began)
            yield images, labels
            start += self.batch

    def seconds(self) -> float:
        """Return the time of a batch while nothing else runs."""
        batches = iter(self)
        for _ in range(2):
            next(batches)
        return self.seconds_of_batches[-1]


def _decoded(data: bytes, work: int) -> Image:
    decode = codec().decode
    for _ in range(work):
        image = decode(data)
    edge = (SIDE - CROP) // 2
    return np.ascontiguousarray(image[edge : edge + CROP, edge : edge + CROP].transpose(2, 0, 1))


def speed_for(seconds_of_one: float, wanted: float, most_workers: int) -> tuple[int, int]:
    """Return (workers, work) with which a batch takes about `wanted` seconds. Prefers few workers.

    Assumes that workers do not slow each other down; the caller measures the actual time.
    """
    best = (1, 1)

    def error(workers: int, work: int) -> float:
        return abs(seconds_of_one * work / workers - wanted) / wanted

    for workers in range(1, most_workers + 1):
        work = max(1, round(wanted * workers / seconds_of_one))
        if error(workers, work) < error(*best) - 0.05:
            best = (workers, work)
    return best
