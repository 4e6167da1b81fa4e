"""Bytes that cross the link, and the memory that this takes."""

import bisect
from itertools import islice

import numpy as np
import pytest
import torch
from drivers import GoesOn
from host_device import WAYS
from torn import values_of
from trace_format import Trace

import pyecho
import pyecho.torch
from pyecho.torch import Device

ROW_BYTES = 3000


def rows(count):
    return [torch.full((ROW_BYTES,), number % 251, dtype=torch.uint8) for number in range(count)]


def values(batches):
    return values_of(torch.cat([each.reshape(-1, ROW_BYTES) for each in batches])).tolist()


# ---------------------------------------------------------------- what crosses


def test_an_item_crosses_once_in_batch_echoing_and_its_uses_are_the_same_tensors(device):
    loader = pyecho.torch.EchoLoader(rows(10), 4, device="cuda:0")
    emitted = list(loader)
    assert values(emitted) == [number for number in range(10) for _ in range(4)]
    assert all(emitted[use] is emitted[use - use % 4] for use in range(40))
    assert loader.stats().h2d_bytes == 10 * ROW_BYTES


@pytest.mark.parametrize("factor", [1, 4])
@pytest.mark.parametrize("echo", [False, True])
def test_batches_echoed_on_the_host_cross_whole_and_examples_for_the_device_once(
    device, factor, echo
):
    loader = pyecho.torch.EchoLoader(
        rows(64), factor, batch_size=8, device=Device("cuda:0", echo=echo), shuffle_buffer=9
    )
    for epoch in (1, 2):
        list(loader)
        indices = (64 + 64 * factor) * 8  # where to store each example, and what each row is
        crossed = 64 * factor * ROW_BYTES if not echo else 64 * ROW_BYTES + indices
        assert loader.stats().h2d_bytes == epoch * crossed


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize("way", ["examples", "on the device", "augmented"])
def test_host_memory_is_bounded(device, way, blocks):
    arguments = {"prefetch": 1} | WAYS[way]
    tight = pyecho.torch.EchoLoader(rows(9), 3, **arguments, max_bytes=10_000)
    with pytest.raises(pyecho.ConfigError, match="max_bytes is"):
        next(iter(tight))
    loader = pyecho.torch.EchoLoader(rows(100), 3, **arguments, max_bytes=1_000_000)
    for _ in range(2):
        assert len(values(list(loader))) == 300


@pytest.mark.parametrize(
    ("arguments", "there", "needed"),
    [
        ({}, {}, (2 + 1 + 2) * 40),
        ({"batch_size": 4}, {}, 2 * 4 * 40),
        ({"batch_size": 4}, {"dtype": torch.float16}, 2 * 4 * 20),
        # The pool has twice the batch size more slots than the shuffle buffer, each of some words.
        ({"batch_size": 4}, {"echo": True}, (6 + 8) * 48 + 4 * 2 * 40 + 2 * 4 * 40),
    ],
)
def test_max_bytes_bounds_what_is_kept_on_the_device(device, arguments, there, needed):
    arguments = {"shuffle_buffer": 6, "pin_memory": False, **arguments}
    if "batch_size" not in arguments:
        arguments["shuffle_buffer"] = 3
    source = [torch.full((2, 5), float(number)) for number in range(21)] * 20

    def take(limit):
        device = Device("cuda:0", max_bytes=limit, **there)
        return next(iter(pyecho.torch.EchoLoader(source, 2, **arguments, device=device)))

    with pytest.raises(pyecho.ConfigError, match=f" need {needed} bytes on cuda:0, but"):
        take(needed - 1)
    take(needed)


@pytest.mark.parametrize("source", [list, GoesOn], ids=["list", "stateful"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"factor": 1.5, "prefetch": 5},
        {"epochs": 3},
        {"steps_per_epoch": 9, "factor": 3},
        {"unique_in_batch": True},
        {"factor": 1, "drop_last": True},
        {"factor": pyecho.Adaptive(3), "steps_per_epoch": 9},
    ],
    ids=lambda options: " ".join(options) or "plain",
)
def test_states_of_states_of_a_pool_load_under_the_bound_of_their_run(device, options, source):
    def loader(limit):
        arguments = {"factor": 2, "batch_size": 4, "shuffle_buffer": 8} | options
        there = Device("cuda:0", echo=True, max_bytes=limit)
        return pyecho.torch.EchoLoader(source([*map(float, range(42))]), **arguments, device=there)

    def fits(limit):
        try:
            next(iter(loader(limit)))
        except pyecho.ConfigError:
            return False
        return True

    least = bisect.bisect_left(range(1 << 16), True, key=fits)
    whole = [batch.tolist() for batch in loader(None)]
    for stop in range(1, 20, 3):
        going, taken = loader(least), []
        for count in (stop, 1, 1, 2):
            taken += [batch.tolist() for batch in islice(going, count)]
            state = going.state_dict()
            going = loader(least)
            going.load_state_dict(state)
            if len(taken) >= len(whole):
                break
        else:
            taken += [batch.tolist() for batch in going]
            assert taken == whole or isinstance(options.get("factor"), pyecho.Adaptive)


@pytest.mark.parametrize("echo", [False, True])
def test_memory_that_cannot_be_pinned_is_a_warning(device, unpinnable, echo):
    loader = pyecho.torch.EchoLoader(rows(8), 2, batch_size=4, device=Device("cuda:0", echo=echo))
    with pytest.warns(RuntimeWarning, match="pageable memory.*no more can be pinned"):
        emitted = list(loader)
    assert sorted(values(emitted)) == [number for number in range(8) for _ in range(2)]


def test_memory_that_must_be_pinned_is_an_error(device, unpinnable):
    loader = pyecho.torch.EchoLoader(rows(8), 2, batch_size=4, device="cuda:0", pin_memory=True)
    with pytest.raises(pyecho.CudaError, match="no more can be pinned"):
        next(iter(loader))


@pytest.fixture
def unpinnable(device, monkeypatch):
    def allocate(size_bytes):
        raise pyecho.CudaError("no more can be pinned")

    monkeypatch.setattr("pyecho.torch.TorchAdapter.allocate", staticmethod(allocate))
    monkeypatch.setattr("pyecho.cuda.why_not", lambda: "")


def test_pageable_memory_is_taken_if_asked_for(device, blocks):
    loader = pyecho.torch.EchoLoader(rows(8), 2, batch_size=4, device="cuda:0", pin_memory=False)
    assert len(list(loader)) == 4
    assert blocks == []


def test_a_pinned_batch_leaves_with_its_block(device, blocks):
    loader = pyecho.torch.EchoLoader(rows(40), 2, batch_size=5, pin_memory=True, shuffle_buffer=0)
    batches = iter(loader)
    kept = [next(batches) for _ in range(10)]
    assert values(kept) == [number for number in range(25) for _ in range(2)]
    used = {batch.untyped_storage().data_ptr() for batch in kept}
    assert len(used) == 10
    assert used <= {block.data_ptr() for block in blocks}
    for batch in kept:
        batch.zero_()
    assert values(batches) == [number for number in range(25, 40) for _ in range(2)]
    assert loader.stats().outstanding_leases == 0


def test_numpy_has_no_pinned_memory():
    with pytest.raises(pyecho.ConfigError, match=r"pyecho\.torch\.EchoLoader"):
        pyecho.EchoLoader(np.arange(10), 2, batch_size=5, pin_memory=True)


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({}, r"DataLoader\(pin_memory=True\)"),
        ({"batch_size": 2, "collate_fn": list}, r"tensor\.pin_memory\(\)"),
    ],
)
def test_pinning_of_batches_that_others_make_is_refused_without_a_device(options, remedy):
    with pytest.raises(pyecho.ConfigError, match=rf"{remedy}.*, or pass device="):
        pyecho.torch.EchoLoader(rows(4), 2, pin_memory=True, **options)
    pyecho.torch.EchoLoader(rows(4), 2, pin_memory=True, device="cuda:0", **options)


@pytest.mark.parametrize("way", WAYS)
def test_uploads_have_spans_in_a_trace(way, device, tmp_path):
    loader = pyecho.torch.EchoLoader(rows(12), 2, **WAYS[way])
    path = tmp_path / "run.json"
    with pyecho.trace(path):
        for _ in loader:
            pass
    trace = Trace(path)
    thread = {"batches": "feeder", "augmented": "augment"}.get(way, "upload")
    assert trace.of("upload", f"pyecho-{thread}")
    assert bool(trace.of("echo")) == (way == "on the device")
    assert bool(trace.of("augment")) == (way == "augmented")
