"""An HTTP server for image files over a line of limited bandwidth, in a process of its own.

It is started by path, as ``python -I server.py ROOT``, and imports the standard library alone. It
prints its port on loopback. Each line of its standard input is a new limit in bytes per second
(``inf`` for none) and is printed once the limit holds. The server ends when its standard input
closes, which the system does however the parent ends.
"""

import sys
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any


class Line:
    """The bandwidth that all connections share, first come, first served. A pause saves up none."""

    def __init__(self) -> None:
        self.rate = float("inf")
        """Bytes per second."""
        self._busy_until = 0.0
        self._lock = threading.Lock()

    def take(self, size: int, now: float) -> float:
        """Claim the line for `size` bytes and return the seconds until they have passed."""
        with self._lock:
            self._busy_until = max(self._busy_until, now) + size / self.rate
            return self._busy_until - now


class _Handler(SimpleHTTPRequestHandler):
    line = Line()
    protocol_version = "HTTP/1.1"  # a connection serves many requests
    wbufsize = -1  # the head leaves together with the content

    def copyfile(self, source: Any, outputfile: Any) -> None:
        content = source.read()
        time.sleep(self.line.take(len(content), time.monotonic()))
        outputfile.write(content)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class _Server(ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64


def main(root: str) -> None:
    """Serve a folder, and obey the lines of the standard input until it closes."""
    server = _Server(("127.0.0.1", 0), partial(_Handler, directory=root))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    for line in sys.stdin:
        _Handler.line.rate = float(line)
        print(line, end="", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
