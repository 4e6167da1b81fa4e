"""All tests in here run against the stand-in driver, whether there is a GPU or not."""

import gc
import os
import threading

import pytest

torch = pytest.importorskip("torch")

import standin as standin_driver  # noqa: E402
from failures import has_failed  # noqa: E402

import pyecho.torch  # noqa: E402


@pytest.fixture(scope="session")
def standin_library(request, tmp_path_factory):
    """The path of the stand-in, which is what pyecho loads in this process from now on."""
    cache = getattr(request.config, "cache", None)
    folder = tmp_path_factory.mktemp("standin") if cache is None else cache.mkdir("standin")
    path = standin_driver.build(folder)
    os.environ["PYECHO_CUDA_DRIVER"] = str(path)
    return path


@pytest.fixture(scope="session")
def loaded(standin_library):
    assert pyecho.cuda.is_available(), pyecho.cuda.why_not()
    return standin_driver.Standin(standin_library)


@pytest.fixture
def standin(loaded, request):
    """The stand-in in its initial state; everything must be in order at the end."""
    loaded.restore()
    yield loaded
    loaded.fail_call(0)
    loaded.hold(standin_driver.RUN)
    if has_failed(request):
        # The traceback keeps the loader, and so its threads: the tests to come get their own.
        for each in gc.get_objects():
            if issubclass(type(each), pyecho.EchoLoader):
                each.close()
        return
    threads = [each for each in threading.enumerate() if each.name.startswith("pyecho")]
    if threads or loaded.registered_ranges():
        gc.collect()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), thread
    loaded.drain()
    loaded.device_memory.clear()
    assert loaded.violations() == 0, loaded.last_violation()
    assert loaded.unpinned_copies() == 0
    assert loaded.registered_ranges() == 0


@pytest.fixture
def device(standin, monkeypatch):
    """Makes ``pyecho.torch.EchoLoader(..., device="cuda:0")`` use tensors of the stand-in."""
    made = []

    def make(_, dtype):
        made.append(standin_driver.StandinTensors(standin, dtype))
        return made[-1]

    def named(name):
        return torch.device(name) if str(name).startswith("cuda") else None

    monkeypatch.setattr("pyecho.torch.cuda_device", named)
    monkeypatch.setattr("pyecho.torch.TorchDevice", make)
    return made


@pytest.fixture
def read(device):
    """Reads emissions as a consumer does: its stream waits, the host only to look at the data."""

    def read_all(loader):
        emitted = []
        for batch in loader:
            device[-1].synchronize()
            emitted.append(batch)
        return emitted

    return read_all
