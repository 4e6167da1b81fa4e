"""Tests that need the emulated CUDA of tools/cuda_emulator (make test-cuda); skipped without it."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM_SECONDS = 550

try:
    from cuda_emulator import control
except (ImportError, OSError) as missing:
    control, reason = None, f"no emulated CUDA device, which make test-cuda has ({missing})"


@pytest.fixture
def emulator():
    """The control of the emulator, whose faults and settings end with the test."""
    if control is None:
        pytest.skip(reason)
    torch = pytest.importorskip("torch")
    torch.cuda.synchronize()
    control.reset()
    yield control
    violations = control.get("violations")
    control.reset()
    Runtime().cudaGetLastError()  # which PyTorch would take for its own
    torch.cuda.synchronize()
    assert violations == 0, control.last_violation()


class Runtime:
    """Functions of the CUDA runtime by name; they return its codes."""

    def __init__(self):
        self._library = ctypes.CDLL(str(control.LIBRARIES / "libcudart.so.13"))

    def __getattr__(self, name):
        function = getattr(self._library, name)
        # Integers are pointers, sizes or flags: as wide as registers.
        return lambda *arguments: function(
            *(ctypes.c_size_t(x) if isinstance(x, int) else x for x in arguments)
        )

    def make(self, name, *arguments):
        """Return the handle or pointer that a function makes."""
        made = ctypes.c_void_p()
        assert getattr(self, name)(ctypes.byref(made), *arguments) == 0
        return made.value


@pytest.fixture
def runtime(emulator):
    """The CUDA runtime without PyTorch."""
    return Runtime()


@pytest.fixture
def program():
    """Runs a program, of this folder or at a path; returns the ended process."""
    if control is None:
        pytest.skip(reason)

    def run(name, *arguments, seconds=PROGRAM_SECONDS, **settings):
        command = [sys.executable, "-X", "faulthandler", str(Path(__file__).parent / name)]
        return subprocess.run(
            [*command, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=seconds,
            env=os.environ | control.environment(**settings),
            check=False,
        )

    return run
