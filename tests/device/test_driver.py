"""Messages about the driver: with one, with none, and with one that will not do."""

import copy
import os
import pickle
import shutil
import subprocess

import numpy as np
import pytest
import scripts
import torch

import pyecho
import pyecho.torch
from pyecho.device.place import named_device, present_device
from pyecho.torch import Device

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
            lambda: list(pyecho.torch.EchoLoader([1], batch_size=1, pin_memory=True)),
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


def test_cuda_without_a_usable_driver_is_all_that_is_missing_and_with_one_it_is_described(tmp_path):
    paths = ["none", "/no/such/file", driver(tmp_path, count=0), driver(tmp_path, init=34)]
    usable = [] if torch.cuda.is_available() else [driver(tmp_path)]  # or it would be called
    found = facts(*paths, *usable)
    for first, errors in found[len(paths) :]:
        assert first == "True 1 (12, 8)"
        assert "build of PyTorch" in errors[0]
        assert "pytorch.org" in errors[0]
    reasons = [
        (None, "PYECHO_CUDA_DRIVER=none; unset it"),
        (None, "install NVIDIA's driver"),
        ((12, 8), "nvidia-smi"),
        ((12, 8), "CUDA_ERROR_STUB_LIBRARY (34)"),
    ]
    for (first, errors), (version, reason) in zip(found, reasons, strict=False):
        assert first == f"False 0 {version}"
        assert errors[0].startswith("device='cuda' needs CUDA: ")
        assert all(reason in error for error in errors)


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
        ({"pin_memory": "shared"}, "True, False or None"),
        ({"device": Device(0, echo=True)}, r"Device\(echo=True\) .* needs a batch_size"),
        (
            {"device": Device(0, echo=True), "batch_size": 2, "augment": max},
            r"use Device\(augment=\)",
        ),
        (
            {
                "device": Device(0, echo=True),
                "batch_size": 2,
                "fields": pyecho.Field((None,), "uint8", 9),
            },
            "has examples of one",
        ),
    ],
)
def test_arguments_that_do_not_fit(device, arguments, message):
    with pytest.raises(pyecho.ConfigError, match=message):
        pyecho.torch.EchoLoader([1], **arguments)


@pytest.mark.parametrize("named", [None, "cpu"])
@pytest.mark.parametrize(
    "option", [{"echo": True}, {"dtype": torch.half}, {"augment": max}, {"max_bytes": 0}], ids=str
)
def test_options_of_a_device_need_one(named, option):
    [name] = option
    with pytest.raises(pyecho.ConfigError, match=rf"Device\({name}=\) needs a device"):
        Device(named, **option)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"echo": "device"}, "must be True or False, got 'device'"),
        ({"dtype": "float16"}, "must be a torch.dtype or None, got 'float16'"),
        ({"augment": 3}, r"must be a function of \(batch, generator\), got 3"),
        ({"max_bytes": -1}, "must be at least 0 .*, got -1"),
        ({"max_bytes": 1.5}, "must be an int, got 1.5"),
    ],
)
def test_wrong_options_of_a_device_are_named(option, message):
    [name] = option
    with pytest.raises(pyecho.ConfigError, match=rf"^Device\({name}=\) {message}"):
        Device("cuda", **option)


def test_a_device_is_a_value():
    one = Device("cuda:0", echo=True, dtype=torch.bfloat16, augment=max, max_bytes=np.int64(8))
    other = Device(np.int8(0), echo=np.True_, dtype=torch.bfloat16, augment=max, max_bytes=8)
    assert one == other == pickle.loads(pickle.dumps(one)) == copy.deepcopy(one)
    assert hash(one) == hash(other)
    assert one != Device("cuda:0")
    assert "echo=True, dtype=torch.bfloat16" in repr(one)
    assert Device("cpu") == Device(None)
    with pytest.raises(AttributeError):
        one.echo = False


def test_file_of_data_with_the_name_of_the_runtime_is_not_run(tmp_path):
    library, ran = tmp_path / "libcudart-rows.so.npy", tmp_path / "ran"
    program = f"""
#include <stdio.h>
__attribute__((constructor)) static void run(void) {{ fclose(fopen("{ran}", "w")); }}
"""
    compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
    command = [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", library]
    subprocess.run(command, input=program, text=True, check=True)
    scripts.run(f"""
        import numpy as np
        from pyecho.device.runtime import runtime

        rows = np.memmap({str(library)!r}, mode="r")
        with open("/proc/self/maps") as maps:
            assert "libcudart-rows" in maps.read()
        runtime()
    """)
    assert not ran.exists()
