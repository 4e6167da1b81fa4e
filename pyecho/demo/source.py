"""The slow source: images from a server on loopback, decoded in threads, in a seeded order."""

from __future__ import annotations

import contextlib
import http.client
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, count
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from urllib.parse import quote

import numpy as np

from pyecho.tools.arguments import CommandError

from . import server
from .images import LabelledPath, decode

_TIMEOUT_SECONDS = 60.0


class ServerProcess:
    """A process that serves a folder (`server.py`), until `close` or the end of this program."""

    def __init__(self, root: Path) -> None:
        # A new session keeps Ctrl-C in the terminal for the trainer, which then stops the server.
        self._process = subprocess.Popen(
            [sys.executable, "-I", server.__file__, str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.port = int(self._reply())

    def set_bandwidth(self, bytes_per_second: float) -> None:
        """Limit the image bytes of all connections, from now on; ``inf`` lifts the limit."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # then there is no reply
            print(bytes_per_second, file=self._process.stdin, flush=True)
        self._reply()

    def close(self) -> None:
        """Stop the server. Closing twice does no harm."""
        self._process.kill()
        self._process.communicate()

    def _reply(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise CommandError(
                f"the image server stopped with exit code {self._process.wait()}: run the "
                "demonstration again"
            )
        return line


class RemoteImages:
    """Iterate over images of a folder that is served on loopback: dicts of `image` and `label`.

    Every iteration is one pass over all images in a new order, which depends on the seed and the
    number of the pass. Threads fetch and decode a bounded number of images ahead of the consumer,
    also across the end of a pass, so that the line never idles between two passes.

    `shape`: of the network's images, see `decode`. `threads`: concurrent requests, each on a
    connection of its own that is reused. `look_ahead`: images fetched ahead of the consumer.
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
        self._images = images
        self._urls = [quote("/" + image.path.relative_to(root).as_posix()) for image in images]
        self._shape = shape
        self._look_ahead = look_ahead
        self._order = chain.from_iterable(
            np.random.default_rng([seed, epoch]).permutation(len(images)) for epoch in count()
        )
        self._pending: deque[Future[Any]] = deque()
        self._unread = 0
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="fetch")
        self._connections: SimpleQueue[http.client.HTTPConnection] = SimpleQueue()
        for _ in range(threads):  # they connect at their first request
            self._connections.put(
                http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_SECONDS)
            )

    def __len__(self) -> int:
        """Return the number of images in one pass."""
        return len(self._images)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Start the next pass. The unread rest of an abandoned pass is skipped."""
        for _ in range(self._unread):
            self._next_future().cancel()
        self._unread = len(self._images)
        while self._unread:
            self._unread -= 1
            yield self._next_future().result()

    def close(self) -> None:
        """End the threads and close every connection."""
        self._pool.shutdown(cancel_futures=True)
        while not self._connections.empty():
            self._connections.get().close()

    def _next_future(self) -> Future[Any]:
        while len(self._pending) <= self._look_ahead:
            self._pending.append(self._pool.submit(self._load, next(self._order)))
        return self._pending.popleft()

    def _load(self, index: int) -> dict[str, Any]:
        image, connection = self._images[index], self._connections.get()
        try:
            connection.request("GET", self._urls[index])
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise CommandError(
                f"the image server stopped answering ({error}): run the demonstration again"
            ) from error
        finally:
            self._connections.put(connection)
        if response.status != http.client.OK:
            raise CommandError(
                f"the image server refused {image.path} ({response.status} {response.reason}): "
                "leave the images in place until the demonstration ends"
            )
        return {"image": decode(image.path, self._shape, content), "label": image.label}
