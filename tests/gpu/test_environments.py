"""Batches are right under each allocator of PyTorch, on each device, and beside another client."""

import shutil
import subprocess
import tempfile

import pytest
import scripts

pytest.importorskip("torch")

SCRIPT = """
    import torch
    import pyecho.torch
    from pyecho.torch import Device

    def with_one(batch, generator):
        return batch + 1

    try:
        assert torch.ones(9, device="cuda").add_(1).sum().item() == 18
    except RuntimeError as error:
        print(f"PyTorch alone cannot do it here: {error}".splitlines()[0])
        sys.exit()
    rows = [torch.full((50_000,), n, dtype=torch.uint8) for n in range(24)]
    examples = {"batch_size": 6, "shuffle_buffer": 8}
    for number in range(torch.cuda.device_count()):
        torch.cuda.set_device(number)
        ways = [
            (Device(number), {}),
            (Device(number), examples),
            (Device(number, dtype=torch.float32), examples),
            (Device(number, augment=with_one), examples),
            (Device(number, echo=True), examples),
            (Device(number, echo=True, augment=with_one), examples),
        ]
        of_thread = torch.cuda.ExternalStream(2, device=number)  # cudaStreamPerThread
        for (there, options), stream in itertools.product(ways, [None, of_thread]):
            expected = [batch + (there.augment is not None) for batch in
                        pyecho.torch.EchoLoader(rows, 3, seed=1, **options)]
            with torch.cuda.stream(stream):
                loader = pyecho.torch.EchoLoader(rows, 3, seed=1, device=there, **options)
                found = [batch.clone() for batch in loader]
                for one, other in zip(expected, found, strict=True):
                    assert other.device.index == number
                    assert torch.equal(one, other.cpu().to(one.dtype)), there
"""
SETTINGS = {
    "default": {},
    "expandable segments": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    "cudaMallocAsync": {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"},
    "no cache": {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
}


def run_or_skip():
    if missing := scripts.run(SCRIPT, errors=None):
        pytest.skip(missing.strip())


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.usefixtures("gpu")
def test_batches_are_those_of_the_host_whatever_the_environment(setting, monkeypatch):
    for name, value in SETTINGS[setting].items():
        monkeypatch.setenv(name, value)
    run_or_skip()


@pytest.mark.usefixtures("gpu")
def test_batches_are_those_of_the_host_in_clients_of_mps(monkeypatch):
    daemon = shutil.which("nvidia-cuda-mps-control")
    if daemon is None:
        pytest.skip("there is no nvidia-cuda-mps-control")
    with tempfile.TemporaryDirectory() as folder:  # a daemon of its own
        monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", folder)
        monkeypatch.setenv("CUDA_MPS_LOG_DIRECTORY", folder)
        subprocess.run([daemon, "-d"], check=True)
        try:
            with scripts.started(SCRIPT) as other:
                run_or_skip()
                assert not scripts.finished(other, errors=None)
        finally:
            subprocess.run([daemon], input="quit\n", text=True, check=False)
