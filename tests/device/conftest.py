"""Loaders in here have a device that is host memory."""

import pytest

torch = pytest.importorskip("torch")

from host_device import HostUploader  # noqa: E402


def named(name):
    return torch.device(name) if str(name).startswith("cuda") else None


@pytest.fixture
def blocks():
    """The blocks of "pinned" memory that were asked for."""
    return []


@pytest.fixture
def device(monkeypatch, blocks):
    """The uploaders that were made; their device is host memory."""

    def allocate(size_bytes):
        blocks.append(torch.empty(size_bytes, dtype=torch.uint8))
        return blocks[-1]

    monkeypatch.setattr("pyecho.torch.cuda_device", named)
    monkeypatch.setattr("pyecho.torch.Uploader", HostUploader)
    monkeypatch.setattr(HostUploader, "made", [])
    monkeypatch.setattr("pyecho.torch.TorchAdapter.allocate", staticmethod(allocate))
    return HostUploader.made
