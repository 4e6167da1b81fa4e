"""What crosses the link, when, who waits for whom, and what host memory it takes."""

import threading
import warnings

import numpy as np
import pytest
import torch
from standin import HOLD, RUN, WAYS, StandinTensors

import pyecho
import pyecho.torch
from pyecho.device.upload import DEPTH, Uploader

ROW_BYTES = 3000
PINNING_FAILS = r"pageable.*cuMemHostRegister.*OUT_OF_MEMORY"


def rows(count):
    return [torch.full((ROW_BYTES,), number % 251, dtype=torch.uint8) for number in range(count)]


def values(batches):
    """Return what the rows hold, each a constant; -1 for one that is torn."""
    batch = torch.cat([each.reshape(-1, ROW_BYTES) for each in batches]).long()
    return torch.where((batch == batch[:, :1]).all(dim=1), batch[:, 0], -1).tolist()


def await_calls(standin, name, count):
    never = threading.Event()
    while standin.calls_of(name) < count:  # the test's time limit ends it
        never.wait(0.001)


# ---------------------------------------------------------------- what crosses


def test_an_item_crosses_once_in_batch_echoing_and_its_uses_are_the_same_tensors(read):
    loader = pyecho.torch.EchoLoader(rows(10), 4, device="cuda:0")
    emitted = read(loader)
    assert values(emitted) == [number for number in range(10) for _ in range(4)]
    assert all(emitted[use] is emitted[use - use % 4] for use in range(40))
    assert loader.stats().h2d_bytes == 10 * ROW_BYTES


@pytest.mark.parametrize("factor", [1, 4])
@pytest.mark.parametrize("echo_on", ["host", "device"])
def test_batches_echoed_on_the_host_cross_whole_and_examples_for_the_device_once(
    read, factor, echo_on
):
    loader = pyecho.torch.EchoLoader(
        rows(64), factor, batch_size=8, device="cuda:0", echo_on=echo_on, shuffle_buffer=9
    )
    for epoch in (1, 2):
        read(loader)
        indices = (64 + 64 * factor) * 8  # where to store each example, and what each row is
        crossed = 64 * factor * ROW_BYTES if echo_on == "host" else 64 * ROW_BYTES + indices
        assert loader.stats().h2d_bytes == epoch * crossed


@pytest.mark.parametrize("way", WAYS)
def test_late_copies_tear_no_batch(device, standin, way):
    standin.set_max_delay_us(1500)
    on_host = {"device": None, "echo_on": "host", "device_dtype": None}
    outputs = []
    for place in ({}, on_host):
        arguments = {"factor": 3, "shuffle_buffer": 10, "device": "cuda:0"} | WAYS[way] | place
        seen = []
        for batch in pyecho.torch.EchoLoader(rows(60), **arguments):
            device[-1].synchronize()
            seen += values([batch])
            if way != "batches":
                batch.fill_(77)  # it is the consumer's own
            del batch
        outputs.append(seen)
    assert outputs[0] == outputs[1]


def test_pinned_sources_are_copied_in_place_and_others_through_pinned_memory(standin):
    uploader = Uploader(StandinTensors(standin), 1)
    buffer = pyecho.EchoBuffer(pyecho.Field(50, np.int32), batch_size=2, factor=1, device=0)
    buffer.put(np.arange(50, dtype=np.int32))
    buffer.close()
    uploaded = [uploader.upload(batch) for batch in buffer]
    assert uploader._engine.staged_bytes == 0
    uploaded.append(uploader.upload(np.arange(50, dtype=np.int32)))
    assert uploader._engine.staged_bytes == 200
    del uploader  # waits for the copies
    assert all((part.item.reshape(-1, 50) == torch.arange(50)).all() for part in uploaded)
    buffer.stop()


def test_a_device_tensor_that_was_changed_in_place_is_noticed(device):
    uses = iter(pyecho.torch.EchoLoader(rows(3), 2, device="cuda:0"))
    next(uses).zero_()
    with pytest.raises(pyecho.EchoMutated, match="copy=True"):
        next(uses)


# ---------------------------------------------------------------- when


def test_a_batch_is_taken_before_its_copy_is_done_and_few_copies_are_under_way(device, standin):
    standin.hold(HOLD)
    loader = pyecho.torch.EchoLoader(
        rows(400), 2, batch_size=4, shuffle_buffer=0, prefetch=9, device="cuda:0"
    )
    batches = iter(loader)
    first = next(batches)  # comes although no copy can be executed
    assert (first == 0xA5).all()
    await_calls(standin, b"cuMemcpyHtoDAsync", DEPTH)  # before they are asked for
    assert standin.pending() > 0
    assert standin.calls_of(b"cuMemcpyHtoDAsync") == DEPTH
    pinned = standin.registered_bytes()
    standin.hold(RUN)
    device[-1].synchronize()
    assert values([first]) == [0, 0, 1, 1]
    assert sum(1 for _ in batches) == 199
    assert standin.registered_bytes() == pinned


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize("echo_on", ["host", "device"])
def test_hoarded_batches_stay_as_they_are_and_cost_no_host_memory(read, echo_on):
    loader = pyecho.torch.EchoLoader(
        rows(100), 3, batch_size=8, device="cuda:0", echo_on=echo_on, shuffle_buffer=20
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # device memory is PyTorch's: pyecho has nothing to grow
        batches = read(loader)
    assert torch.tensor(values(batches)).bincount().tolist() == [3] * 100


@pytest.mark.parametrize("way", ["examples", "on the device", "augmented"])
def test_host_memory_is_bounded(read, standin, way):
    arguments = {"device": "cuda:0", "prefetch": 1} | WAYS[way]
    tight = pyecho.torch.EchoLoader(rows(9), 3, **arguments, max_bytes=10_000)
    with pytest.raises(pyecho.ConfigError, match="max_bytes is"):
        next(iter(tight))
    loader = pyecho.torch.EchoLoader(rows(100), 3, **arguments, max_bytes=1_000_000)
    for _ in range(2):
        assert len(values(read(loader))) == 300
        assert 0 < standin.registered_bytes() <= 1_000_000


@pytest.mark.parametrize("echo_on", ["host", "device"])
def test_memory_that_cannot_be_pinned_is_a_warning(read, standin, echo_on):
    standin.set_register_limit(0)
    loader = pyecho.torch.EchoLoader(rows(8), 2, batch_size=4, device="cuda:0", echo_on=echo_on)
    with pytest.warns(RuntimeWarning, match=PINNING_FAILS):
        emitted = read(loader)
    assert sorted(values(emitted)) == [number for number in range(8) for _ in range(2)]
    standin.restore()


def test_memory_that_must_be_pinned_is_an_error(device, standin):
    standin.set_register_limit(0)
    loader = pyecho.torch.EchoLoader(rows(8), 2, batch_size=4, device="cuda:0", memory="pinned")
    with pytest.raises(pyecho.CudaError, match="cuMemHostRegister") as raised:
        next(iter(loader))
    assert (raised.value.code, raised.value.call) == (2, "cuMemHostRegister")
    assert raised.value.name == "CUDA_ERROR_OUT_OF_MEMORY"
    standin.restore()


def test_pageable_memory_is_taken_if_asked_for(read):
    loader = pyecho.torch.EchoLoader(rows(8), 2, batch_size=4, device="cuda:0", memory="pageable")
    assert len(read(loader)) == 4  # through the uploader's own pinned memory


def test_pinned_memory_on_the_host(standin):
    loader = pyecho.EchoLoader(np.arange(10), 2, batch_size=5, memory="pinned")
    assert len([batch.copy() for batch in loader]) == 4
    assert standin.registered_ranges() > 0
