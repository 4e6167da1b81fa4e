"""Losses on a device, observed without a wait."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import pyecho  # noqa: E402


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_observe_copies_losses_in_order_without_a_wait(device):
    worth, expected = pyecho.Worth(), pyecho.Worth()
    previous = torch.cuda.get_sync_debug_mode()
    losses = torch.zeros(8, device=device)
    for step in range(300):
        info = pyecho.EchoInfo(step * 8 + np.arange(8), np.arange(8, dtype=np.int32) % 3)
        losses.add_(0.5)
        torch.cuda.set_sync_debug_mode("error")
        try:
            worth.observe(losses, info)
        finally:
            torch.cuda.set_sync_debug_mode(previous)
        expected.observe(np.full(8, 0.5 * (step + 1)), info)
    for name, value in expected.state_dict().items():
        np.testing.assert_array_equal(worth.state_dict()[name], value)
