"""Messages about the driver: with one, with none, and with one that will not do."""

import os
import shutil
import subprocess

import numpy as np
import pytest
import scripts
import torch

import pyecho
import pyecho.torch
from pyecho.device.place import named_device, present_device

pytestmark = pytest.mark.slow

STUB = """
#include <string.h>
int cuDriverGetVersion(int* version) { *version = 12080; return 0; }
int cuInit(unsigned flags) { return INIT; }
int cuDeviceGetCount(int* count) { *count = COUNT; return 0; }
int cuGetErrorName(int result, const char** name) { *name = "CUDA_ERROR_STUB_LIBRARY"; return 0; }
int cuThreadExchangeStreamCaptureMode(int* mode) { int was = 0; memcpy(mode, &was, 4); return 0; }
"""


def driver(folder, init=0, count=1):
    """Compile a libcuda that answers questions only; return its path."""
    library = folder / f"libcuda{init}{count}.so"
    compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
    command = [compiler, "-shared", "-fPIC", f"-DINIT={init}", f"-DCOUNT={count}", "-x", "c"]
    subprocess.run([*command, "-", "-o", library], input=STUB, text=True, check=True)
    return str(library)


def facts(*paths):
    """Return three lines for each path of a driver, told by processes of their own.

    They are forked from one that has imported PyTorch, which takes longer than all else.
    """
    lines = scripts.run(
        f"""
        import warnings
        from pyecho import cuda
        import pyecho.torch
        warnings.filterwarnings("ignore", ".*use of fork", DeprecationWarning)
        for path in {paths}:
            if os.fork() == 0:
                break
            assert os.wait()[1] == 0
        else:
            sys.exit()
        os.environ["PYECHO_CUDA_DRIVER"] = path
        print(cuda.is_available(), cuda.device_count(), cuda.driver_version())
        for use in (
            lambda: next(iter(pyecho.torch.EchoLoader([1], device="cuda"))),
            lambda: list(pyecho.torch.EchoLoader([1], batch_size=1, memory="pinned")),
        ):
            try:
                use()
            except pyecho.CudaError as error:
                print(error)
            else:
                print()
        assert list(pyecho.EchoLoader([1, 2])) == [1, 1, 2, 2]
        """
    ).splitlines()
    return [(first, errors) for first, *errors in zip(*[iter(lines)] * 3, strict=True)]


def test_cuda_without_a_usable_driver_is_all_that_is_missing(tmp_path):
    found = facts("none", "/no/such/file", driver(tmp_path, count=0), driver(tmp_path, init=34))
    reasons = [
        (None, "PYECHO_CUDA_DRIVER=none; unset it"),
        (None, "install NVIDIA's driver"),
        ((12, 8), "nvidia-smi"),
        ((12, 8), "CUDA_ERROR_STUB_LIBRARY (34)"),
    ]
    for (first, errors), (version, reason) in zip(found, reasons, strict=True):
        assert first == f"False 0 {version}"
        assert errors[0].startswith("device='cuda' needs CUDA: ")
        assert all(reason in error for error in errors)


@pytest.mark.skipif(torch.cuda.is_available(), reason="PyTorch would call more of the driver")
def test_cuda_with_a_driver_is_described(tmp_path):
    [(first, errors)] = facts(driver(tmp_path))
    assert first == "True 1 (12, 8)"
    assert "build of PyTorch" in errors[0]
    assert "pytorch.org" in errors[0]


@pytest.mark.parametrize(
    "device",
    ["gpu", "cuda:x", "", -1, 2**40, 2**80, 1.5, True, "xpu", "mps:0", torch.device("meta"), [0]],
)
def test_what_names_no_cuda_device_is_refused_with_a_remedy(device):
    with pytest.raises(pyecho.ConfigError) as raised:
        pyecho.torch.EchoLoader([1], device=device)
    for part in ("must be a CUDA device or the CPU", f"got {device!r}", "pass 'cuda', 'cuda:0'"):
        assert part in str(raised.value)


@pytest.fixture
def one_device(monkeypatch):
    monkeypatch.setattr("pyecho.cuda.why_not", lambda: "")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)


@pytest.mark.parametrize("device", [0, np.int64(0)])
def test_a_number_is_that_of_a_cuda_device(one_device, device):
    assert present_device(named_device(device)) == torch.device("cuda", 0)


@pytest.mark.parametrize("device", ["cuda:1", "cuda:99", 5])
def test_a_device_that_is_not_there_is_refused_with_the_first_batch(one_device, device):
    batches = iter(pyecho.torch.EchoLoader([1], device=device))
    for _ in range(2):
        with pytest.raises(pyecho.ConfigError, match="this process sees 1 CUDA device,"):
            next(batches)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"echo_on": "device"}, "echo_on='device' needs a device"),
        ({"device_dtype": torch.float16}, "device_dtype needs a device"),
        ({"device": "cpu", "echo_on": "device", "batch_size": 2}, "needs a device"),
        ({"echo_on": "both"}, "'host' or 'device'"),
        ({"device_dtype": "float16"}, "torch.dtype"),
        ({"memory": "shared"}, "'auto', 'pageable', 'pinned'"),
        ({"device": "cuda", "echo_on": "device"}, "needs a batch_size"),
        (
            {"device": "cuda", "echo_on": "device", "batch_size": 2, "augment": max},
            "use device_augment",
        ),
    ],
)
def test_arguments_that_do_not_fit(device, arguments, message):
    with pytest.raises(pyecho.ConfigError, match=message):
        pyecho.torch.EchoLoader([1], **arguments)
