"""The slow source: images from a server on loopback, which threads of the loader decode."""

from __future__ import annotations

import contextlib
import http.client
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from urllib.parse import quote

from pyecho.tools.arguments import CommandError

from . import server
from .images import LabelledPath, decode

READ: dict[str, Any] = {"shuffle": True, "num_workers": 8, "workers": "thread"}
"""Options of a loader of `RemoteImages`."""

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
    """Images of a folder that is served on loopback, by index: dicts of `image` and `label`.

    A loader reads them with the options `READ`: in a seeded order, by threads that fetch and decode
    ahead of the consumer. `shape`: of the network's images, see `decode`.
    """

    def __init__(
        self, port: int, root: Path, images: Sequence[LabelledPath], shape: tuple[int, int, int]
    ) -> None:
        self._images = images
        self._urls = [quote("/" + image.path.relative_to(root).as_posix()) for image in images]
        self._shape = shape
        # They connect at their first request, and are used again.
        connect = partial(http.client.HTTPConnection, "127.0.0.1", port, timeout=_TIMEOUT_SECONDS)
        self._connections: SimpleQueue[http.client.HTTPConnection] = SimpleQueue()
        for _ in range(READ["num_workers"]):
            self._connections.put(connect())

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self._images)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Fetch and decode an image."""
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

    def close(self) -> None:
        """Close every connection."""
        while not self._connections.empty():
            self._connections.get().close()
