"""Tests on a real device. Without one, each is skipped and says why."""

import gc
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from failures import has_failed  # noqa: E402

import pyecho  # noqa: E402

JOIN_SECONDS = 60
PROGRAM_SECONDS = 60


def reason_to_skip():
    """Name the part that is missing here; "" if none is."""
    if not torch.cuda.is_available():
        return f"PyTorch {torch.__version__} sees no CUDA device"
    if not pyecho.cuda.is_available():
        return f"pyecho cannot use CUDA: {pyecho.cuda.why_not()}"
    return ""


def settle():
    """Return when no thread of pyecho's is left, and the device has nothing to do."""
    gc.collect()
    for thread in threading.enumerate():
        if thread.name.startswith("pyecho"):
            thread.join(JOIN_SECONDS)
            assert not thread.is_alive(), thread
    gc.collect()
    torch.cuda.synchronize()


@pytest.fixture(scope="session")
def gpu():
    """The current CUDA device."""
    if reason := reason_to_skip():
        pytest.skip(reason)
    return torch.device("cuda", torch.cuda.current_device())


@pytest.fixture
def device(gpu, request):
    """The device; after a test that passes, nothing is left that uses it."""
    torch.cuda.synchronize()
    yield gpu
    if not has_failed(request):
        settle()


@pytest.fixture(scope="session")
def cycles_per_second(gpu):
    """How long the device's clock takes for `torch.cuda._sleep`, measured."""
    cycles = 50_000_000
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(cycles)  # the first kernel is slow to start
    began.record()
    torch.cuda._sleep(cycles)
    ended.record()
    ended.synchronize()
    return cycles / (began.elapsed_time(ended) * 1e-3)


@pytest.fixture
def sleep(device, cycles_per_second):
    """Gives the current stream a kernel that takes that many seconds."""
    return lambda seconds: torch.cuda._sleep(int(seconds * cycles_per_second))


@pytest.fixture
def run(gpu, tmp_path):
    """Runs a program (a path, or its text) in a process of its own; returns what it prints."""

    def run_program(program, *arguments):
        if not isinstance(program, Path):
            path = tmp_path / "program.py"
            path.write_text(textwrap.dedent(program))
            program = path
        try:
            process = subprocess.run(
                [sys.executable, "-I", "-X", "faulthandler", str(program), *arguments],
                capture_output=True,
                text=True,
                timeout=PROGRAM_SECONDS,
                cwd=tmp_path,
                check=False,
            )
        except subprocess.TimeoutExpired as expired:
            pytest.fail(f"still running after {PROGRAM_SECONDS} s: {expired.stderr}")
        assert process.returncode == 0, process.stderr
        for sign in ("Traceback", "Fatal", "terminate called"):
            assert sign not in process.stderr, process.stderr
        return process.stdout

    return run_program


@pytest.fixture
def wait_until():
    """Waits until a condition holds; returns whether it does in the end."""

    def wait(condition, seconds=10):
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(1e-3)
        return True

    return wait
