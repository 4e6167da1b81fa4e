import contextlib
import http.client
import signal
import socket
import subprocess
import sys

import pytest

from pyecho.demo.server import Line
from pyecho.demo.server_process import ServerProcess
from pyecho.tools.arguments import CommandError


@pytest.mark.parametrize(
    ("asked", "waits"),
    [
        ([(10.0, 50)], [0.5]),
        ([(0.0, 10), (0.0, 10), (0.0, 10)], [0.1, 0.2, 0.3]),
        ([(0.0, 10), (60.0, 10)], [0.1, 0.1]),
    ],
    ids=["until the last byte has passed", "one after the other", "idle time is lost"],
)
def test_messages_wait_for_the_bandwidth(asked, waits):
    line = Line(rate=float("inf"))
    assert line.take(10**9, now=0.0) == 0.0
    line.rate = 100.0
    assert [line.take(size, now=now) for now, size in asked] == pytest.approx(waits)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a class").mkdir()
    (tmp_path / "a class" / "\u00e9 1.png").write_bytes(b"first")
    (tmp_path / "a class" / "2.png").write_bytes(b"second")
    return tmp_path


@pytest.fixture
def server(folder):
    with contextlib.closing(ServerProcess(folder)) as server:
        yield server


@pytest.fixture
def get(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)

    def get(url, method="GET", **headers):
        connection.request(method, url, headers=headers)
        response = connection.getresponse()
        return response.status, response.read()

    get.connection = connection
    yield get
    connection.close()


def test_server_sends_the_bytes_of_the_files_over_one_connection(server, get):
    assert get("/a%20class/%C3%A9%201.png") == (200, b"first")
    port = get.connection.sock.getsockname()[1]
    server.set_bandwidth(10_000.0)
    assert get("/a%20class/2.png") == (200, b"second"), "also with limited bandwidth"
    assert get.connection.sock.getsockname()[1] == port
    assert get("/a%20class/2.png", Connection="close")[0] == 200
    assert get.connection.sock.recv(1) == b""


@pytest.mark.parametrize("url", ["/", "/missing.png", "/a%20class/../../x", "//etc/hostname"])
def test_only_files_below_the_folder_are_served(get, url):
    assert get(url)[0] == 404


def test_closing_stops_the_process_even_while_a_connection_is_open(folder):
    server = ServerProcess(folder)
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        server.close()
        assert client.recv(1) == b""
    server.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=30)


def test_dead_server_is_reported_when_the_bandwidth_is_set(server):
    server._process.kill()
    server._process.wait()
    with pytest.raises(CommandError, match="image server stopped with exit code -9"):
        server.set_bandwidth(1.0)


def test_server_does_not_outlive_a_parent_that_is_killed(folder):
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, pathlib\n"
            "from pyecho.demo.server_process import ServerProcess\n"
            "server = ServerProcess(pathlib.Path(sys.argv[1]))\n"
            "print(server.port, flush=True)\n"
            "sys.stdin.read()\n",
            str(folder),
        ],
        cwd=folder,  # not the source folder, which would hide the installed package
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    port = int(parent.stdout.readline())
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        parent.send_signal(signal.SIGKILL)
        parent.communicate()
        assert client.recv(1) == b""
