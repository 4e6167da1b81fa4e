"""The server and its client: every image once a pass, over a limited line."""

import socket
import subprocess
import sys
from contextlib import closing

import pytest

pytest.importorskip("PIL")

from pyecho import EchoLoader
from pyecho.demo.images import decode, read_folder
from pyecho.demo.server import Line
from pyecho.demo.source import READ, RemoteImages, ServerProcess
from pyecho.tools.arguments import CommandError


@pytest.fixture
def images(image_folder):
    (image_folder / "circle").rename(image_folder / "\u00e9 circle?")  # is quoted in URLs
    return read_folder(image_folder)


@pytest.fixture
def server(images):
    with closing(ServerProcess(images.root)) as server:
        yield server


@pytest.fixture
def source(images, server):
    with closing(RemoteImages(server.port, images.root, images.train, images.shape)) as source:
        yield source


def contents(examples):
    return [(example["image"].tobytes(), example["label"]) for example in examples]


def test_threads_of_a_loader_deliver_every_image_once(images, source):
    expected = [(decode(i.path, images.shape).tobytes(), i.label) for i in images.train]
    assert contents(map(source.__getitem__, range(len(source)))) == expected
    with EchoLoader(source, 1, **READ) as loader:
        assert sorted(contents(loader)) == sorted(expected)


def test_messages_wait_for_the_bandwidth_one_after_the_other_and_idle_time_is_lost():
    line = Line()
    assert line.take(10**9, now=0.0) == 0.0
    line.rate = 100.0
    waits = [line.take(10, now) for now in (0.0, 0.0, 60.0)]
    assert waits == pytest.approx([0.1, 0.2, 0.1])


def test_server_that_dies_is_reported(source, server):
    with EchoLoader(source, 1, **READ) as loader:
        examples = iter(loader)
        next(examples)
        server._process.kill()
        with pytest.raises(CommandError, match="image server stopped answering"):
            list(examples)
    with pytest.raises(CommandError, match="image server stopped with exit code -9"):
        server.set_bandwidth(1.0)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda path: path.unlink(), r"refused .*\.png \(404 .*: leave the images in place"),
        (lambda path: path.write_bytes(b"not a PNG file"), r"\.png cannot be decoded .*: replace"),
    ],
    ids=["vanished", "no image"],
)
def test_image_that_cannot_be_had_is_reported(images, source, change, problem):
    for image in images.train:
        change(image.path)
    with pytest.raises(CommandError, match=problem):
        source[0]


def is_over(client):
    """Return True if the other side of a connection is gone, accepted or not."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_closing_stops_the_server_even_while_a_connection_is_open(images):
    server = ServerProcess(images.root)
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        server.close()
        assert is_over(client)
    server.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=30)


def test_server_does_not_outlive_a_parent_that_is_killed(images):
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, pathlib\n"
            "from pyecho.demo.source import ServerProcess\n"
            "server = ServerProcess(pathlib.Path(sys.argv[1]))\n"
            "print(server.port, flush=True)\n"
            "sys.stdin.read()\n",
            str(images.root),
        ],
        cwd=images.root,  # not the source folder, which would hide the installed package
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    port = int(parent.stdout.readline())
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        parent.kill()
        parent.communicate()
        assert is_over(client)
