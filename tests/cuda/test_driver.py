"""What pyecho says about the driver: with one, with none, and with one that will not do."""

import json
import sys

import numpy as np
import pytest
import scripts
import standin as standin_driver
import torch

import pyecho
import pyecho.torch
from pyecho.device.torch import cuda_device

DEVICE_ERROR = """
    import pyecho.torch
    for use in (
        lambda: pyecho.torch.EchoLoader([1], device="cuda"),
        lambda: pyecho.EchoBuffer(pyecho.Field((), int), batch_size=1, memory="pinned"),
        lambda: list(pyecho.EchoLoader([1], batch_size=1, memory="pinned")),
        lambda: pyecho._core.cuda_relax_capture(),
    ):
        try:
            use()
        except pyecho.CudaError as error:
            print(error)
    print(pyecho.cuda.is_available(), pyecho.cuda.device_count(), pyecho.cuda.driver_version())
    assert list(pyecho.EchoLoader([1, 2])) == [1, 1, 2, 2]
"""


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"PYECHO_CUDA_DRIVER": "none"}, "PYECHO_CUDA_DRIVER=none; unset it"),
        ({"PYECHO_CUDA_DRIVER": "/no/such/file"}, "install NVIDIA's driver"),
        ({"PYECHO_STANDIN_DEVICES": "0"}, "nvidia-smi"),
        ({"PYECHO_STANDIN_INIT_RESULT": "34"}, "CUDA_ERROR_STUB_LIBRARY"),
        ({"PYECHO_STANDIN_HIDE": "cuEventRecord"}, "lacks cuEventRecord"),
        ({"PYECHO_STANDIN_VERSION": "9000"}, "lacks cuStreamIsCapturing"),
    ],
)
def test_without_a_usable_driver_only_cuda_is_missing(
    standin_library, monkeypatch, variables, reason
):
    monkeypatch.setenv("PYECHO_CUDA_DRIVER", str(standin_library))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    lines = scripts.run(DEVICE_ERROR).splitlines()
    assert all(reason in line for line in lines[:4])
    assert lines[0].startswith("device='cuda' needs CUDA: ")
    assert lines[4].startswith("False 0 ")


def test_nothing_is_loaded_before_it_is_needed(standin_library, monkeypatch):
    monkeypatch.setenv("PYECHO_CUDA_DRIVER", str(standin_library))
    scripts.run(
        """
        import pyecho.torch
        list(batch.clone() for batch in pyecho.torch.EchoLoader(np.arange(10), 2, batch_size=5))
        with open("/proc/self/maps") as maps:
            assert "cuda_standin" not in maps.read()
        assert pyecho.cuda.is_available()
        with open("/proc/self/maps") as maps:
            assert "cuda_standin" in maps.read()
        """
    )


def test_the_driver_is_described(loaded):
    assert pyecho.cuda.is_available()
    assert pyecho.cuda.device_count() == 1
    assert pyecho.cuda.driver_version() == (12, 8)
    assert pyecho.cuda.why_not() == ""


def test_info_shows_devices_and_the_speed_of_pinning(standin_library, monkeypatch):
    monkeypatch.setenv("PYECHO_CUDA_DRIVER", str(standin_library))
    monkeypatch.setenv("PYECHO_STANDIN_DEVICES", "2")
    script = "from pyecho.cli import main; main(['info', '--json'])"
    facts = json.loads(scripts.run(script))
    assert facts["cuda_driver"] == "12.8"
    assert len(facts["cuda_devices"]) == 2
    assert facts["pinning_bytes_per_second"] > 0


def test_a_torch_without_cuda_is_named(loaded):
    if torch.cuda.is_available():
        pytest.skip("this build of PyTorch has CUDA")
    with pytest.raises(pyecho.CudaError, match=r"build of PyTorch.*pytorch.org"):
        pyecho.torch.EchoLoader([1], device="cuda")


@pytest.mark.parametrize(
    "device", ["gpu", "cuda:x", "", -1, 2**40, 2**80, 1.5, True, "mps", torch.device("meta"), [0]]
)
def test_what_names_no_cuda_device_is_refused_with_a_remedy(device):
    with pytest.raises(pyecho.ConfigError) as raised:
        pyecho.torch.EchoLoader([1], device=device)
    for part in ("must be a CUDA device or the CPU", f"got {device!r}", "pass 'cuda', 'cuda:0'"):
        assert part in str(raised.value)


@pytest.mark.parametrize("device", [0, np.int64(0)])
def test_a_number_is_that_of_a_cuda_device(loaded, monkeypatch, device):
    if not torch.cuda.is_available():
        with pytest.raises(pyecho.CudaError, match="'cuda:0' needs CUDA: this build of PyTorch"):
            pyecho.torch.EchoLoader([1], device=device)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert cuda_device(device) == torch.device("cuda", 0)


@pytest.mark.parametrize("device", ["cuda:1", "cuda:99", 5])
def test_a_device_that_is_not_there_is_refused_when_the_loader_is_made(loaded, monkeypatch, device):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    with pytest.raises(pyecho.ConfigError, match="this process sees 1 CUDA device,"):
        pyecho.torch.EchoLoader([1], device=device)


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
            "augment on the device",
        ),
    ],
)
def test_arguments_that_do_not_fit(device, arguments, message):
    with pytest.raises(pyecho.ConfigError, match=message):
        pyecho.torch.EchoLoader([1], **arguments)


@pytest.mark.skipif(sys.platform != "linux", reason="fork() as Linux has it")
@pytest.mark.parametrize("arguments", ["", "batch_size=4, echo_on='device', shuffle_buffer=6"])
def test_in_a_forked_child_a_running_iterator_and_a_new_one_are_errors(standin_library, arguments):
    output = scripts.run(
        standin_driver.LOADER.format(library=str(standin_library))
        + f"""
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads, from Python 3.12
        rows = [torch.ones(1)] * 100
        loader = pyecho.torch.EchoLoader(rows, 1, device="cuda:0", {arguments})
        running = iter(loader)
        emitted = len(next(running))
        child = os.fork()
        if child == 0:
            for attempt in (lambda: next(running), lambda: next(iter(loader))):
                try:
                    attempt()
                except pyecho.EchoError as error:
                    print(type(error).__name__, "fork" in str(error), flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        emitted += sum(len(batch) for batch in running)
        assert emitted == 100
        """
    )
    assert output == "EchoError True\nCudaError True\n"


def test_exit_in_the_middle_of_an_upload_is_clean(standin_library, monkeypatch):
    monkeypatch.setenv("PYECHO_CUDA_DRIVER", str(standin_library))
    monkeypatch.setenv("PYECHO_STANDIN_MAX_DELAY_US", "20000")
    scripts.run(
        """
        from pyecho._core import TransferEngine
        engine = TransferEngine(device=0, depth=4, kept=0)
        source, target = np.ones(1 << 20, np.uint8), np.zeros(1 << 20, np.uint8)
        for _ in range(4):
            engine.start([(target.ctypes.data, source.ctypes.data, source.nbytes)], source)
        """
    )
