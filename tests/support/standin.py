"""The stand-in CUDA driver in Python: building it, steering it, and tensors for it.

The control functions are documented in tests/cuda_standin/standin.h. Device memory of the stand-in
is host memory, so a CPU tensor can act as a CUDA tensor. Its contents are wrong until the copies to
it have been executed, which happens late, on threads of the stand-in.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import torch

import pyecho.device.torch

RUN, HOLD, STEP = range(3)

LOADER = f"""
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        os.environ["PYECHO_CUDA_DRIVER"] = {{library!r}}
        import pathlib
        import torch
        import pyecho.torch
        import standin
        driver = standin.Standin(pathlib.Path({{library!r}}))
        device = standin.StandinTensors(driver)
        pyecho.torch.cuda_device = torch.device
        pyecho.torch.TorchDevice = lambda *_: device
"""
"""The beginning of a script that has the stand-in as a device; `library` is to be filled in."""

WAYS = {
    "batches": {},
    "examples": {"batch_size": 4},
    "on the device": {"batch_size": 4, "echo_on": "device", "shuffle_buffer": 6},
    "converted": {"batch_size": 4, "device_dtype": torch.float16},
    "augmented": {"batch_size": 4, "augment": lambda batch, rng: batch, "augment_workers": 3},
}
"""Arguments of loaders whose batches go to the device in different ways."""

_ROOT = Path(__file__).parents[2]
_SOURCES = _ROOT / "tests/cuda_standin"
_POISON = 0xA5


def build(folder: Path) -> Path:
    """Compile the stand-in with $CXX, else c++, else g++, unless `folder` has it already."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or "g++"
    command = [compiler, "-std=c++20", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread"]
    command += [f"-I{_ROOT / 'csrc'}", f"-I{_SOURCES}", "-x", "c++", "-", "-ldl"]
    digest = hashlib.sha256(repr(command).encode())
    used = [_ROOT / "csrc/cuda/driver_api.hpp", _ROOT / "csrc/core/plan/random.hpp"]
    for path in sorted([*_SOURCES.glob("*.*"), *used]):
        digest.update(path.read_bytes())
    library = folder / f"libcuda_standin-{digest.hexdigest()[:16]}.so"
    if not library.exists():
        # As one unit, which takes a quarter of the time.
        unit = "\n".join(f'#include "{path.name}"' for path in sorted(_SOURCES.glob("*.cpp")))
        made = library.with_suffix(f".{os.getpid()}")
        subprocess.run([*command, "-o", str(made)], input=unit, text=True, check=True)
        made.replace(library)
    return library


class Standin:
    """The library that pyecho has loaded, or will load, in this process."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        for name in ("calls", "violations", "unpinned_copies", "pending", "registered_bytes"):
            getattr(self._library, f"standin_{name}").restype = ctypes.c_uint64
        for name in ("copied_bytes", "live_events", "registered_ranges", "calls_of"):
            getattr(self._library, f"standin_{name}").restype = ctypes.c_uint64
        self._library.standin_last_violation.restype = ctypes.c_char_p
        self._context = ctypes.c_void_p()
        self._functions = {}
        self.device_memory = []

    def __getattr__(self, name):
        """Return the control function ``standin_<name>``."""
        return getattr(self._library, f"standin_{name}")

    def fail_call(self, nth, result=999, *, sticky=False, name=None):
        """Make the nth call from now fail."""
        self._library.standin_fail_call(
            name and name.encode(), ctypes.c_uint64(nth), result, int(sticky)
        )

    def call(self, name, version, *arguments):
        """Call a driver function in the primary context of device 0; must succeed."""
        if not self._context:
            self._call("cuInit", 2000, 0)
            self._call("cuDevicePrimaryCtxRetain", 7000, ctypes.byref(self._context), 0)
        self._call("cuCtxPushCurrent", 4000, self._context)
        try:
            self._call(name, version, *arguments)
        finally:
            self._call("cuCtxPopCurrent", 4000, ctypes.byref(ctypes.c_void_p()))

    def _call(self, name, version, *arguments):
        if name not in self._functions:
            found, status = ctypes.c_void_p(), ctypes.c_int()
            result = self._library.cuGetProcAddress_v2(
                name.encode(),
                ctypes.byref(found),
                version,
                ctypes.c_uint64(1),
                ctypes.byref(status),
            )
            assert (result, status.value) == (0, 0), name
            self._functions[name] = ctypes.CFUNCTYPE(ctypes.c_int)(found.value)
        result = self._functions[name](*arguments)
        assert result == 0, (name, result)

    def new_stream(self) -> int:
        """Make a stream, as a consumer's."""
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", 2000, ctypes.byref(stream), 1)
        return stream.value

    def synchronize(self, stream: int) -> None:
        """Wait until a stream has finished all its work."""
        self.call("cuStreamSynchronize", 2000, ctypes.c_void_p(stream))


class StandinTensors(pyecho.device.torch.TorchDevice):
    """Device arrays that are CPU tensors, filled by the stand-in's copies.

    PyTorch's work on pyecho's stream (gathers, conversions) is done at once, after the earlier work
    of the stream. PyTorch does not reuse freed device memory while a stream may still write to it.
    Here the stand-in keeps that memory, and it outlives all copies.
    """

    eager = False
    """Whether a delivery waits, for consumers that compute on the CPU at once."""

    def __init__(self, standin: Standin, dtype: torch.dtype | None = None) -> None:
        super().__init__(torch.device("cpu", 0), dtype)
        self._standin = standin
        self.consumer = standin.new_stream()
        self.pools = 0
        """How many were made."""

    def compute_on(self, stream):
        pass

    def current_stream(self):
        return self.consumer

    def hand_over(self, array):
        if self.eager:
            self.synchronize()

    def pool(self, slots, like):
        self.pools += 1
        return super().pool(slots, like)

    def gather(self, pool, index, like):
        # After a failed copy the index is anything: a GPU reads somewhere, and PyTorch hears of it
        # with its next call.
        self._standin.drain()
        return super().gather(pool, index.clamp(0, len(pool) - 1), like)

    def _empty(self, shape, dtype):
        tensor = torch.empty(shape, dtype=dtype)
        ctypes.memset(tensor.data_ptr(), _POISON, tensor.nbytes)
        self._standin.device_memory.append(tensor)
        return tensor

    @contextlib.contextmanager
    def _computing(self):
        self._standin.drain()  # not a call of the driver, because a test may make that fail
        yield

    def synchronize(self):
        """Wait until delivered data can be read."""
        self._standin.synchronize(self.consumer)
