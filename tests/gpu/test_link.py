"""Copies across the link, and how many of them are kept."""

import numpy as np
import pytest
import scripts

torch = pytest.importorskip("torch")

from waiting import wait_until  # noqa: E402

import pyecho.torch  # noqa: E402
from pyecho.device.handover import HandOver  # noqa: E402
from pyecho.items.nest import leaves_of  # noqa: E402


@pytest.mark.parametrize("has_functions", [True, False])
@pytest.mark.parametrize("echo", [False, True])
def test_leaves_of_a_batch_lie_in_one_block_and_count_their_changes_apart(
    device, echo, has_functions, monkeypatch
):
    if not has_functions:  # an older PyTorch
        monkeypatch.setattr("pyecho.device.leaves.functions", lambda: None)
        monkeypatch.setattr("pyecho.device.pipeline.functions", lambda: None)
    rows = [{"x": torch.ones(3), "name": str(n), "y": torch.tensor(n)} for n in range(8)]
    options = {"batch_size": 4, "shuffle_buffer": 1, "with_info": True}
    there = pyecho.torch.Device(device, echo=echo)
    loader = pyecho.torch.EchoLoader(rows, 1, device=there, **options)
    for number, (batch, info) in enumerate(loader):
        weight = torch.ones(3, device=device, requires_grad=True)
        loss = (weight * batch["x"]).sum()
        batch["y"].add_(1)  # were it a view of the same tensor, backward() would refuse
        loss.backward()
        assert weight.grad.tolist() == [4.0] * 3
        expected = list(range(4 * number, 4 * number + 4))
        assert batch["y"].tolist() == [n + 1 for n in expected]
        assert batch["name"] == list(map(str, expected))
        assert info.source_index.tolist() == expected
        x, y = (batch[leaf].untyped_storage() for leaf in "xy")
        assert x.data_ptr() == y.data_ptr()
        assert all(batch[leaf].is_contiguous() for leaf in "xy")


def test_all_that_crosses_of_an_item_is_in_one_pinned_block_that_serves_again(device):
    handover = HandOver(device, ahead=2)

    def allocated():
        return torch.cuda.host_memory_stats()["active_requests.allocated"]

    before = allocated()
    for number in range(5):
        item = {"x": torch.arange(1000) + number, "y": np.arange(7), "z": torch.tensor(number)}
        there = handover.deliver(handover.pack(item))
        assert there["x"].tolist() == list(range(number, number + 1000))
        assert there["y"].tolist() == list(range(7))
        assert there["z"].cpu().item() == number  # item() there takes pinned memory
        torch.cuda.synchronize()
    assert allocated() == before + 1
    own = torch.arange(1000).pin_memory()
    assert torch.equal(handover.deliver(handover.pack(own)).cpu(), own)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.complex128])
def test_uploads_keep_the_strides_of_dense_tensors(device, dtype):
    handover = HandOver(device, ahead=2)
    images = torch.arange(2 * 3 * 40 * 50).reshape(2, 3, 40, 50).to(dtype)
    hosts = (
        images,
        images.to(memory_format=torch.channels_last),
        images[:, 1:, ::2],
        images[:1].expand(4, 3, 40, 50),
        images[0, 0, 0, 0],
        images[:0],
    )
    for item in (*hosts, hosts):
        there = handover.deliver(handover.pack(item))
        for host, tensor in zip(leaves_of(item), leaves_of(there), strict=True):
            assert tensor.stride() == torch.empty_like(host).stride()
            assert torch.equal(tensor.cpu(), host)


def test_packing_starts_no_threads(gpu):
    scripts.run(
        """
        import torch
        from pyecho.device.handover import HandOver
        handover = HandOver(torch.device("cuda", 0), ahead=2)
        torch.set_num_threads(4)
        pageable = torch.empty(1 << 24)  # as filling it would start them
        handover.pack(pageable[:1])
        before = os.listdir("/proc/self/task")
        handover.pack([pageable, pageable.view(2, -1).T])
        assert os.listdir("/proc/self/task") == before
        torch.empty_like(pageable).copy_(pageable)  # does
        assert len(os.listdir("/proc/self/task")) > len(before)
        """
    )


def test_memory_is_kept_until_copies_are_over_whatever_the_mode(device, sleep, monkeypatch):
    """A loader that was begun in inference mode ends outside of it, with copies under way."""
    copies = torch.cuda.Stream(device)
    monkeypatch.setattr("pyecho.device.handover.stream_lent_to", lambda owner, device: copies)
    rows = [torch.full((200_000,), 1 + n % 250, dtype=torch.uint8) for n in range(400)]
    loader = pyecho.torch.EchoLoader(rows, 2, batch_size=8, device=device)
    batches = iter(loader)
    with torch.inference_mode():
        next(batches)
    assert wait_until(lambda loader=loader: loader.stats().h2d_bytes >= 4 * 8 * 200_000)
    with torch.cuda.stream(copies):
        sleep(0.3)
    for _ in range(2):
        next(batches)  # which are there; those that follow are sent behind the sleep
    assert wait_until(lambda loader=loader: loader.stats().h2d_bytes >= 6 * 8 * 200_000)
    del batches, loader
    own = [torch.zeros(8, 200_000, dtype=torch.uint8, device=device) for _ in range(20)]
    for _ in range(20):  # the emulator sees a copy whose source changes
        own.append(torch.zeros(8, 200_000, dtype=torch.uint8, pin_memory=True))
    torch.cuda.synchronize()
    assert not any(tensor.any() for tensor in own)
