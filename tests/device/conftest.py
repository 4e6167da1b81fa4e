"""Loaders in here have a device that is host memory; in some files that of the machine, if any."""

import pytest

torch = pytest.importorskip("torch")

from host_device import HostHandOver, as_the_device  # noqa: E402

from pyecho.device.pipeline import device_augmentation  # noqa: E402

ON_ANY_DEVICE = ("test_augment", "test_epochs", "test_same_output", "test_sources")


@pytest.fixture
def blocks():
    """The blocks of "pinned" memory that were asked for."""
    return []


@pytest.fixture
def device(monkeypatch, blocks, request):
    """Copies of each loader go to a device that is host memory."""
    if torch.cuda.is_available() and request.path.stem in ON_ANY_DEVICE:
        return []  # the device is a device

    def allocate(size_bytes):
        blocks.append(torch.empty(size_bytes, dtype=torch.uint8))
        return blocks[-1]

    as_the_device(monkeypatch)
    monkeypatch.setattr(HostHandOver, "copies", 0)
    monkeypatch.setattr(HostHandOver, "failing", 0)
    monkeypatch.setattr(
        "pyecho.device.pipeline.device_augmentation",
        lambda function, config, device: device_augmentation(function, config, torch.device("cpu")),
    )
    monkeypatch.setattr("pyecho.torch.TorchAdapter.allocate", staticmethod(allocate))
    monkeypatch.setattr(HostHandOver, "made", [])
    return HostHandOver.made
