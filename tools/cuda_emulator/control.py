"""Settings, failures and questions of tests to the emulated CUDA devices; see README.md."""

from __future__ import annotations

import ctypes
import sysconfig
from collections import Counter
from collections.abc import Iterable
from contextlib import contextmanager
from pathlib import Path

LIBRARIES = Path(sysconfig.get_paths()["purelib"]) / "nvidia" / "cu13" / "lib"
"""The folder in which PyTorch's libraries look for those of CUDA."""

OUT_OF_MEMORY = 2
NOT_INITIALIZED = 3
ILLEGAL_ADDRESS = 700
LAUNCH_FAILED = 719

Kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

_library = ctypes.CDLL(str(LIBRARIES / "libcuda.so.1"), mode=ctypes.RTLD_GLOBAL)
_number = ctypes.c_int64
_library.emulator_set.argtypes = [ctypes.c_char_p, _number]
_library.emulator_get.argtypes = [ctypes.c_char_p]
_library.emulator_get.restype = _number
_library.emulator_device_bytes.restype = _number
_library.emulator_hold.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
_library.emulator_hold.restype = None
_library.emulator_fail.argtypes = [ctypes.c_char_p, _number, ctypes.c_int, ctypes.c_int]
_library.emulator_fail_running.argtypes = [ctypes.c_int, _number, ctypes.c_int]
_library.emulator_calls.restype = ctypes.c_size_t
_library.emulator_calls.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
_library.emulator_last_violation.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
_library.emulator_violation.argtypes = [ctypes.c_char_p]
_library.emulator_launch.argtypes = [
    ctypes.c_void_p,
    ctypes.c_int,
    Kernel,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_int),
]


def set(name: str, value: int) -> None:
    """Change a setting: delay_us, seed, device_limit, pinned_limit, version."""
    if _library.emulator_set(name.encode(), value):
        raise KeyError(name)


def get(name: str) -> int:
    """Return a setting or a count, such as pinned_copies or violations."""
    if (value := _library.emulator_get(name.encode())) < 0:
        raise KeyError(name)
    return value


def reset() -> None:
    """Forget faults, violations and held streams; settings are those of the environment again."""
    _library.emulator_reset()


def environment(**settings: int) -> dict[str, str]:
    """Return the environment variable that gives settings to a child process."""
    return {"CUDA_EMULATOR": " ".join(f"{name}={value}" for name, value in settings.items())}


def fail(function: str, nth: int = 1, code: int = LAUNCH_FAILED, *, sticky=False):
    """Let the nth call from now of a function answer `code`.

    After a sticky failure every call does, but for those that ask nothing of the device.
    """
    _library.emulator_fail(function.encode(), nth, code, sticky)


def spare(functions: Iterable[str]) -> None:
    """Let functions work on after a sticky failure, and after one of running work."""
    for function in functions:
        _library.emulator_spare(function.encode())


def fail_running(kind: str, nth: int = 1, code: int = ILLEGAL_ADDRESS) -> None:
    """Let the nth "copy" or "kernel" to run from now fail: no synchronising call works after it."""
    _library.emulator_fail_running({"copy": 0, "kernel": 1}[kind], nth, code)


def calls(*, passive: bool = False) -> Counter[str]:
    """Return the number of calls of each function so far; subtract to have those of a stretch.

    Functions that ask nothing of the device are left out unless they are wanted.
    """
    text = ctypes.create_string_buffer(_library.emulator_calls(None, 0) + 4096)
    _library.emulator_calls(text, len(text))
    counts = (line.split() for line in text.value.decode().splitlines())
    return Counter(
        {name: int(count) for name, count, is_passive in counts if passive >= int(is_passive)}
    )


@contextmanager
def held(stream=None, device: int = 0):
    """Keep a stream (of PyTorch's, its handle, or the default one) from running any work."""
    handle = getattr(stream, "cuda_stream", stream)
    _library.emulator_hold(handle, device, 1)
    try:
        yield
    finally:
        _library.emulator_hold(handle, device, 0)


def device_bytes(device: int = 0) -> int:
    """Return how much memory of a device is allocated."""
    return _library.emulator_device_bytes(device)


def violation(text: str) -> None:
    """Report a violation."""
    _library.emulator_violation(text.encode())


def last_violation() -> str:
    """Return the text of the last violation."""
    text = ctypes.create_string_buffer(4096)
    _library.emulator_last_violation(text, len(text))
    return text.value.decode()


@contextmanager
def expect_violation(text: str):
    """Expect violations, the last of which contains `text`."""
    before = get("expected")
    set("expecting", 1)
    try:
        yield
    finally:
        set("expecting", 0)
    assert get("expected") > before, f"no violation was noticed, expected {text!r}"
    assert text in last_violation(), last_violation()


def launch(stream: int, device: int, kernel, argument: int) -> tuple[int, bool]:
    """Launch `kernel(argument)`; return the code of CUDA, and whether it was captured."""
    captured = ctypes.c_int()
    code = _library.emulator_launch(stream, device, kernel, argument, captured)
    return code, bool(captured)


def settle() -> None:
    """Wait until all work has run that was issued so far, but on held streams."""
    _library.emulator_settle()


def finish() -> None:
    """Let all work run; kernels issued later do not."""
    _library.emulator_finish()
