"""What crosses the link, when, and who waits for whom."""

import gc
import threading
import warnings

import numpy as np
import pytest
import torch
from standin import HOLD, RUN, StandinTensors

import pyecho
import pyecho.torch

ROW_BYTES = 3000


def rows(count):
    return [torch.full((ROW_BYTES,), number % 251, dtype=torch.uint8) for number in range(count)]


def test_an_item_crosses_once_in_batch_echoing(read):
    loader = pyecho.torch.EchoLoader(rows(10), 4, device="cuda:0")
    assert len(read(loader)) == 40
    assert loader.stats().h2d_bytes == 10 * ROW_BYTES


def test_all_uses_of_an_item_are_the_same_device_tensors(device):
    loader = pyecho.torch.EchoLoader(rows(3), 4, device="cuda:0")
    emitted = list(loader)
    assert all(emitted[use] is emitted[use - use % 4] for use in range(12))


def test_batches_echoed_on_the_host_cross_whole(read):
    loader = pyecho.torch.EchoLoader(rows(64), 4, batch_size=8, device="cuda:0", shuffle_buffer=9)
    read(loader)
    assert loader.stats().h2d_bytes == 64 * 4 * ROW_BYTES


@pytest.mark.parametrize("factor", [1, 2, 4, 8])
def test_examples_echoed_on_the_device_cross_once(read, factor):
    loader = pyecho.torch.EchoLoader(
        rows(64), factor, batch_size=8, device="cuda:0", echo_on="device", shuffle_buffer=9
    )
    read(loader)
    indices = (64 + 64 * factor) * 8  # where to store each example, and what each row is
    assert loader.stats().h2d_bytes == 64 * ROW_BYTES + indices


def test_a_batch_is_taken_before_its_copy_is_done(device, standin):
    standin.hold(HOLD)
    loader = pyecho.torch.EchoLoader(rows(40), 2, batch_size=4, device="cuda:0")
    batches = iter(loader)
    first = next(batches)  # comes although no copy can be executed
    assert standin.pending() > 0
    assert (first == 0xA5).all()
    standin.hold(RUN)
    device[-1].synchronize()
    assert first[:, 0].tolist() == [0, 0, 1, 1]
    del batches


def test_copies_start_before_they_are_asked_for(device, standin):
    loader = pyecho.torch.EchoLoader(rows(40), 2, batch_size=4, device="cuda:0")
    batches = iter(loader)
    calls = threading.Event()
    for _ in range(2000):
        if standin.calls_of(b"cuMemcpyHtoDAsync") >= 2:
            break
        calls.wait(0.01)
    assert standin.calls_of(b"cuMemcpyHtoDAsync") >= 2
    del batches


@pytest.mark.parametrize("echo_on", ["host", "device"])
def test_statistics_that_are_asked_for_while_the_epoch_ends_are_whole(device, monkeypatch, echo_on):
    loader = pyecho.torch.EchoLoader(
        rows(8), 2, batch_size=4, device="cuda:0", echo_on=echo_on, drop_last=True
    )
    batches = iter(loader)
    for _ in range(4):
        next(batches)
    [run] = loader._runs
    count, ends = run._stages[0]._stats, [run.finish]

    def count_while_it_ends():
        while ends:
            ends.pop()()  # as in another thread, at the worst moment
        return count()

    monkeypatch.setattr(run._stages[0], "_stats", count_while_it_ends)
    during = loader.stats()
    after = loader.stats()
    assert (during.fresh, during.emitted, during.batches) == (8, 16, 4)
    assert during.h2d_bytes >= 8 * ROW_BYTES
    assert (after.fresh, after.emitted, after.h2d_bytes) == (8, 16, during.h2d_bytes)


def test_nothing_is_allocated_once_it_runs(device, standin):
    loader = pyecho.torch.EchoLoader(rows(3000), 2, batch_size=4, device="cuda:0")
    batches = iter(loader)
    for _ in range(100):
        next(batches)

    def allocations():
        names = (b"cuEventCreate", b"cuStreamCreate", b"cuMemHostRegister")
        return [standin.calls_of(name) for name in names]

    before = allocations()
    assert sum(1 for _ in batches) == 1400
    assert allocations() == before


def test_pinned_sources_are_copied_in_place_and_others_through_pinned_memory(device, standin):
    from pyecho.device.upload import Uploader

    arrays = StandinTensors(standin)
    uploader = Uploader(arrays, 1)
    buffer = pyecho.EchoBuffer(pyecho.Field(50, np.int32), batch_size=2, factor=1, device=0)
    buffer.put(np.arange(50, dtype=np.int32))
    buffer.close()
    uploaded = [uploader.upload(batch) for batch in buffer]
    assert uploader._engine.staged_bytes == 0
    uploaded.append(uploader.upload(np.arange(50, dtype=np.int32)))
    assert uploader._engine.staged_bytes == 200
    uploader._engine.drain()
    assert all((part.item.reshape(-1, 50) == torch.arange(50)).all() for part in uploaded)
    buffer.stop()


@pytest.mark.parametrize("echo_on", ["host", "device"])
def test_hoarded_batches_stay_as_they_are(read, echo_on):
    loader = pyecho.torch.EchoLoader(
        rows(100), 3, batch_size=8, device="cuda:0", echo_on=echo_on, shuffle_buffer=20
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # device memory is PyTorch's: pyecho has nothing to grow
        batches = read(loader)
    values = torch.cat(batches)
    assert (values == values[:, :1]).all()
    assert values[:, 0].bincount().tolist() == [3] * 100


def test_a_device_tensor_that_was_changed_in_place_is_noticed(device):
    uses = iter(pyecho.torch.EchoLoader(rows(3), 2, device="cuda:0"))
    next(uses).zero_()
    with pytest.raises(pyecho.EchoMutated, match="copy=True"):
        next(uses)


@pytest.mark.parametrize("taken", [0, 1, 5])
@pytest.mark.parametrize("more", [{}, {"batch_size": 4}, {"batch_size": 4, "echo_on": "device"}])
def test_an_abandoned_iterator_lets_everything_go(device, standin, more, taken):
    loader = pyecho.torch.EchoLoader(rows(500), 3, device="cuda:0", **more)
    batches = iter(loader)
    for _ in range(taken):
        next(batches)
    del batches, loader
    gc.collect()  # the fixture sees whether a thread or pinned memory is left


def test_memory_that_cannot_be_pinned_is_a_warning(device, standin):
    standin.set_register_limit(0)
    with pytest.warns(RuntimeWarning, match=r"pageable.*cuMemHostRegister.*OUT_OF_MEMORY"):
        emitted = list(pyecho.torch.EchoLoader(rows(8), 2, batch_size=4, device="cuda:0"))
    device[-1].synchronize()
    assert torch.cat(emitted)[:, 0].tolist() == [n for n in range(8) for _ in range(2)]
    standin.restore()


def test_memory_that_must_be_pinned_is_an_error(device, standin):
    standin.set_register_limit(0)
    loader = pyecho.torch.EchoLoader(rows(8), 2, batch_size=4, device="cuda:0", memory="pinned")
    with pytest.raises(pyecho.CudaError, match="cuMemHostRegister") as raised:
        iter(loader)
    assert (raised.value.code, raised.value.call) == (2, "cuMemHostRegister")
    assert raised.value.name == "CUDA_ERROR_OUT_OF_MEMORY"
    standin.restore()


def test_pageable_memory_is_taken_if_asked_for(device, standin):
    loader = pyecho.torch.EchoLoader(rows(8), 2, batch_size=4, device="cuda:0", memory="pageable")
    assert len(list(loader)) == 4  # through the uploader's own pinned memory


def test_pinned_memory_on_the_host(standin):
    buffer = pyecho.EchoBuffer(pyecho.Field(5, float), batch_size=2, memory="pinned")
    assert standin.registered_ranges() > 0
    buffer.stop()
    del buffer
    loader = pyecho.EchoLoader(np.arange(10), 2, batch_size=5, memory="pinned")
    assert len([batch.copy() for batch in loader]) == 4
