import contextlib
import http.client
import signal
import socket
import subprocess
import sys

import pytest

from pyecho.demo.errors import DemoError
from pyecho.demo.server import TokenBucket
from pyecho.demo.server_process import ServerProcess


class TestTokenBucket:
    def test_a_message_waits_until_its_last_byte_has_passed(self):
        bucket = TokenBucket(rate=100.0, burst=0.0)
        assert bucket.take(50, now=10.0) == pytest.approx(0.5)

    def test_messages_queue_behind_each_other(self):
        bucket = TokenBucket(rate=100.0, burst=0.0)
        assert [bucket.take(10, now=0.0) for _ in range(3)] == pytest.approx([0.1, 0.2, 0.3])

    def test_bytes_over_a_long_time_keep_to_the_rate_however_they_are_asked_for(self):
        bucket = TokenBucket(rate=1000.0, burst=0.0)
        now = sent = 0.0
        for size in [1, 700, 13, 250, 99] * 100:
            now += bucket.take(size, now)
            sent += size
        assert sent / now == pytest.approx(1000.0)

    def test_an_idle_time_is_not_made_up_for_without_burst(self):
        bucket = TokenBucket(rate=100.0, burst=0.0)
        bucket.take(10, now=0.0)
        assert bucket.take(10, now=60.0) == pytest.approx(0.1)

    def test_a_burst_passes_at_once_after_an_idle_time_and_no_more_than_that(self):
        bucket = TokenBucket(rate=100.0, burst=20.0)
        assert [bucket.take(10, now=60.0) for _ in range(3)] == pytest.approx([0.0, 0.0, 0.1])

    def test_no_limit_means_no_wait(self):
        bucket = TokenBucket(rate=float("inf"), burst=0.0)
        assert bucket.take(10**9, now=0.0) == 0.0

    def test_a_new_rate_holds_for_what_is_asked_for_next(self):
        bucket = TokenBucket(rate=float("inf"), burst=0.0)
        bucket.take(100, now=5.0)
        bucket.rate = 100.0
        assert bucket.take(100, now=5.0) == pytest.approx(1.0)


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


def get(connection, url, method="GET", headers=None):
    connection.request(method, url, headers=headers or {})
    response = connection.getresponse()
    return response.status, response.read()


@pytest.fixture
def connection(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    yield connection
    connection.close()


def test_the_server_sends_the_bytes_of_the_files_over_one_connection(connection):
    assert get(connection, "/a%20class/%C3%A9%201.png") == (200, b"first")
    port = connection.sock.getsockname()[1]
    assert get(connection, "/a%20class/2.png") == (200, b"second")
    assert connection.sock.getsockname()[1] == port


@pytest.mark.parametrize("url", ["/", "/missing.png", "/a%20class/../../x", "//etc/hostname"])
def test_only_files_below_the_folder_are_served(connection, url):
    assert get(connection, url)[0] == 404


def test_other_methods_than_get_are_refused(connection):
    assert get(connection, "/a%20class/2.png", method="DELETE")[0] == 405


def test_the_connection_is_closed_on_request(connection):
    assert get(connection, "/a%20class/2.png", headers={"Connection": "close"})[0] == 200
    assert connection.sock.recv(1) == b""


def test_limited_bandwidth_still_delivers_every_byte(server, connection):
    server.set_bandwidth(10_000.0)
    assert get(connection, "/a%20class/2.png") == (200, b"second")


def test_closing_stops_the_process_even_while_a_connection_is_open(folder):
    server = ServerProcess(folder)
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        server.close()
        assert client.recv(1) == b""
    server.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=30)


def test_a_dead_server_is_reported_when_the_bandwidth_is_set(server):
    server._process.kill()
    server._process.wait()
    with pytest.raises(DemoError, match="image server stopped with exit code -9"):
        server.set_bandwidth(1.0)


def test_no_server_outlives_a_parent_that_is_killed(folder):
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
