"""The slow source: fetch images over HTTP and decode them, in threads, in a seeded order."""

from __future__ import annotations

import http.client
import io
import queue
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypedDict
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from pyecho.tools.arguments import CommandError

from .images import DECODE_ERRORS, LabelledPath, decode, unreadable

_TIMEOUT_SECONDS = 60.0


class Example(TypedDict):
    """One decoded image, channels last, and its class."""

    image: NDArray[np.uint8]
    label: int


class RemoteImages:
    """Iterate over images that an HTTP server on loopback holds.

    Every iteration is one pass over all images in a new order, which depends on the seed and the
    number of the pass. Threads fetch and decode a bounded number of images ahead of the consumer,
    also across the end of a pass, so that the line never idles between two passes. Results leave
    in order.

    `port`: of the server on loopback, which serves the folder `root`. `shape`: of the
    network's images, see `decode`. `threads`: concurrent requests, each on a connection of its own
    that is reused. `look_ahead`: images that are fetched ahead of the consumer.
    """

    def __init__(
        self,
        port: int,
        root: Path,
        images: Sequence[LabelledPath],
        shape: tuple[int, int, int],
        *,
        seed: int,
        threads: int = 8,
        look_ahead: int = 64,
    ) -> None:
        self._port = port
        self._images = images
        self._urls = [quote("/" + image.path.relative_to(root).as_posix()) for image in images]
        self._shape = shape
        self._seed = seed
        self._look_ahead = look_ahead
        self._order = self._orders()
        self._pending: deque[Future[Example]] = deque()
        self._unread = 0
        self._idle: queue.SimpleQueue[http.client.HTTPConnection] = queue.SimpleQueue()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="fetch")

    def __len__(self) -> int:
        """Return the number of images in one pass."""
        return len(self._images)

    def __iter__(self) -> Iterator[Example]:
        """Start the next pass. The unread rest of an abandoned pass is skipped."""
        for _ in range(self._unread):
            self._next_future().cancel()
        self._unread = len(self._images)
        for _ in range(len(self._images)):
            self._unread -= 1
            yield self._next_future().result()

    def close(self) -> None:
        """End the threads and close every connection."""
        self._pool.shutdown(cancel_futures=True)
        while not self._idle.empty():
            self._idle.get().close()

    def _orders(self) -> Iterator[int]:
        """Yield the positions of all passes, one pass after the other, without end."""
        epoch = 0
        while True:
            yield from np.random.default_rng([self._seed, epoch]).permutation(len(self._images))
            epoch += 1

    def _next_future(self) -> Future[Example]:
        while len(self._pending) <= self._look_ahead:
            self._pending.append(self._pool.submit(self._load, next(self._order)))
        return self._pending.popleft()

    def _load(self, index: int) -> Example:
        content = self._fetch(self._urls[index])
        image = self._images[index]
        try:
            return {"image": decode(io.BytesIO(content), self._shape), "label": image.label}
        except DECODE_ERRORS as error:
            raise unreadable(image.path, error) from error

    def _fetch(self, url: str) -> bytes:
        try:
            connection = self._idle.get_nowait()
        except queue.Empty:
            connection = http.client.HTTPConnection(
                "127.0.0.1", self._port, timeout=_TIMEOUT_SECONDS
            )
        try:
            connection.request("GET", url)
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise CommandError(
                f"the image server stopped answering ({error}): run the demonstration again"
            ) from error
        self._idle.put(connection)
        if response.status != http.client.OK:
            raise CommandError(
                f"the image server refused {url} ({response.status} {response.reason}): "
                "leave the images in place until the demonstration ends"
            )
        return content
