"""`Device(augment=)`: every use by itself, on the device, with random numbers of its own."""

import pytest
import torch
from host_device import there

import pyecho.torch
from pyecho.torch import Device

WAYS = {
    "batches": {},
    "host": {"batch_size": 4, "shuffle_buffer": 9},
    "device": {"batch_size": 4, "shuffle_buffer": 9},
    "after the host's": {"batch_size": 4, "augment": lambda batch, rng: batch},
    "batches, after the host's": {"augment": lambda batch, rng: batch},
}
ways = pytest.mark.parametrize("way", WAYS)


def rows(count=20):
    return [torch.full((4, 3), float(number)) for number in range(count)]


def noisy(batch, generator):
    assert type(batch) is type(there(torch.empty(0)))
    return batch + torch.rand(batch.shape, generator=generator, device=generator.device)


def loader_of(way, source=None, factor=3, augment=noisy, dtype=None, **more):
    there = Device("cuda:0", echo=way == "device", augment=augment, dtype=dtype)
    arguments = {"device": there, **WAYS[way], **more}
    return pyecho.torch.EchoLoader(rows() if source is None else source, factor, **arguments)


@ways
def test_each_use_has_noise_of_its_own_and_the_next_epoch_other_noise(device, way):
    loader = loader_of(way, with_info=True)
    without = list(loader_of(way, augment=None, with_info=True))
    seen = set()
    for _ in range(2):
        emitted = [batch for batch, _ in loader]
        assert len(emitted) == len(without)
        seen.update(value for batch in emitted for value in batch.frac().flatten().tolist())
    assert len(seen) > 0.99 * 2 * sum(batch.numel() for batch, _ in without)
    loader.set_epoch(0)
    for (batch, info), (plain, expected) in zip(loader, without, strict=True):
        assert torch.equal(batch.floor(), plain)
        assert [column.tolist() for column in info] == [column.tolist() for column in expected]
    if way == "batches":
        assert loader.stats().h2d_bytes == 3 * 20 * 4 * 3 * 4, "an item crosses once an epoch"


@ways
def test_the_noise_depends_on_seed_epoch_and_place_alone(device, way):
    torch.manual_seed(1)
    first = torch.cat(list(loader_of(way)))
    torch.manual_seed(2)
    assert torch.equal(first, torch.cat(list(loader_of(way, prefetch=5))))
    assert not torch.equal(first, torch.cat(list(loader_of(way, seed=7))))


def test_host_and_device_echo_give_the_same(device):
    host, on_device = (torch.cat(list(loader_of(way))) for way in ("host", "device"))
    assert torch.equal(host, on_device)


def test_it_comes_after_the_conversion_and_may_change_everything(device):
    def halves(batch, generator):
        assert batch.dtype == torch.float16
        return {"left": batch[:, :1], "right": batch[:, 1:], "made": "over there"}

    source = [torch.full((4, 3), number, dtype=torch.uint8) for number in range(5)]
    for way in WAYS:
        for batch in loader_of(way, source, augment=halves, dtype=torch.float16):
            assert batch["made"] == "over there"
            assert batch["left"].shape[1] == 1


def add_in_place(batch, generator):
    return batch.add_(1)


@pytest.mark.parametrize("way", ["host", "device"])
def test_batches_of_examples_may_be_changed_in_place(device, way):
    emitted = torch.cat(list(loader_of(way, augment=add_in_place)))
    assert sorted(emitted[:, 0, 0].tolist()) == [float(n + 1) for n in range(20) for _ in range(3)]


def test_items_that_are_shared_by_their_uses_may_be_changed_with_copy_only(device):
    with pytest.raises(pyecho.EchoMutated, match="copy=True"):
        list(loader_of("batches", augment=add_in_place))
    emitted = list(loader_of("batches", augment=add_in_place, copy=True))
    assert [each[0, 0].item() for each in emitted] == [n + 1 for n in range(20) for _ in range(3)]


@ways
def test_an_error_arrives_in_the_place_of_its_batch_and_the_next_epoch_is_whole(device, way):
    calls = []

    def failing(batch, generator):
        calls.append(1)
        if len(calls) == 3:
            raise ArithmeticError("the third")
        return batch

    loader = loader_of(way, augment=failing)
    batches = iter(loader)
    assert len([next(batches), next(batches)]) == 2
    with pytest.raises(ArithmeticError, match="the third"):
        next(batches)
    expected = len(list(loader_of(way, augment=None)))
    assert len(list(loader)) == expected


@ways
def test_what_returns_nothing_is_refused(device, way):
    with pytest.raises(pyecho.ConfigError, match=r"Device\(augment=\) returned None"):
        next(iter(loader_of(way, augment=lambda batch, generator: None)))
