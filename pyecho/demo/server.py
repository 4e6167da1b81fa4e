"""An HTTP server for image files whose bandwidth is limited.

It runs in a process of its own, so that serving never holds the interpreter lock of the trainer.
It is started by path, as ``python -I server.py ROOT``, and therefore imports nothing but the
standard library. The parent talks to it over its pipes:

===================  ==========================  ==============================================
direction            line                        meaning
===================  ==========================  ==============================================
server to parent     ``listening PORT``          requests are accepted on loopback
parent to server     ``bandwidth BYTES``         limit to so many bytes per second; ``inf`` lifts
server to parent     ``bandwidth BYTES``         the limit now holds
===================  ==========================  ==============================================

The server lives exactly as long as its standard input is open. The system closes that pipe however
the parent ends, so no server outlives the program that started it.
"""

import asyncio
import contextlib
import mimetypes
import sys
from pathlib import Path
from urllib.parse import unquote


class Line:
    """Decide how long each message must wait so that the average rate stays within a limit.

    Pure arithmetic: the caller passes the time in. All users of one line share its rate, and
    they are served in the order in which they ask. A pause saves up no bandwidth.
    """

    def __init__(self, rate: float) -> None:
        self._busy_until = 0.0
        self.rate = rate
        """Bytes per second; ``inf`` means no limit."""

    def take(self, size: int, now: float) -> float:
        """Claim the bandwidth for `size` bytes and return the seconds until they have passed."""
        start = max(self._busy_until, now)
        self._busy_until = start + size / self.rate
        return max(0.0, self._busy_until - now)


class ImageServer:
    """Answer ``GET`` requests for the files that a folder has now, over a line of limited rate.

    All connections share the line. It counts image bytes, not headers.
    """

    def __init__(self, root: Path, line: Line) -> None:
        self._files = {
            "/" + path.relative_to(root).as_posix(): path
            for path in root.rglob("*")
            if path.is_file()
        }
        self._line = line

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until the client closes it."""
        # Up to Python 3.11 asyncio reports a cancelled handler as an error, so none stays
        # cancelled: it is the normal end of a connection that is open when the server stops.
        with contextlib.suppress(
            asyncio.CancelledError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
            ConnectionError,
        ):
            keep_alive = True
            while keep_alive:
                head = await reader.readuntil(b"\r\n\r\n")
                keep_alive = b"\r\nconnection: close" not in head.lower()
                request_line = head.split(b"\r\n", 1)[0].decode("latin-1")
                writer.write(await self._response(request_line))
                await writer.drain()
        writer.close()

    async def _response(self, request_line: str) -> bytes:
        method, _, rest = request_line.partition(" ")
        if method != "GET":
            return _message("405 Method Not Allowed", b"only GET is served\n", "text/plain")
        path = self._files.get(unquote(rest.partition(" ")[0].partition("?")[0]))
        if path is None:
            return _message("404 Not Found", b"no such image\n", "text/plain")
        try:
            content = path.read_bytes()
        except OSError as error:
            reason = f"{error.strerror}\n".encode()
            return _message("500 Internal Server Error", reason, "text/plain")
        delay = self._line.take(len(content), asyncio.get_running_loop().time())
        if delay > 0:
            await asyncio.sleep(delay)
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        return _message("200 OK", content, kind)


def _message(status: str, content: bytes, kind: str) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode("latin-1") + content


async def serve(root: Path) -> None:
    """Serve `root` on a free port of loopback, obeying the parent's lines until they end."""
    loop = asyncio.get_running_loop()
    commands = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    limited = Line(rate=float("inf"))
    images = ImageServer(root, limited)
    server = await asyncio.start_server(images.answer, "127.0.0.1", 0)
    print("listening", server.sockets[0].getsockname()[1], flush=True)
    while line := await commands.readline():
        limited.rate = float(line.split()[1])
        print(line.decode().strip(), flush=True)
    server.close()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
