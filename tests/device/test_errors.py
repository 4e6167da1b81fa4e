"""Errors reach the consumer at their place: the source's last, the device's at once."""

import gc
import weakref

import pytest
import torch
from host_device import WAYS, HostHandOver, plain

import pyecho
import pyecho.torch
from pyecho.torch import Device


class Unreadable(Exception):
    pass


def row(number):
    return torch.full((600,), number, dtype=torch.uint8)


def failing_source(items, error):
    """Yield rows, then raise; or yield an item that differs, of which pyecho makes the error."""
    yield from map(row, range(items))
    if isinstance(error, pyecho.SpecMismatch):
        yield torch.ones(3)
    raise error


def emitted_before(error, loader):
    """Return what an epoch emits before the error that ends it, and that error."""
    batches = []
    with pytest.raises(error) as raised:
        for batch in loader:
            batches.append(batch[:, 0].tolist())
    return batches, raised.value


# ---------------------------------------------------------------- of the source


@pytest.mark.parametrize("echo", [False, True])
@pytest.mark.parametrize(
    "arguments",
    [
        {"factor": 2, "batch_size": 4, "shuffle_buffer": 3},
        {"factor": 1, "batch_size": 16, "shuffle_buffer": 64},
        {"factor": 2.5, "batch_size": 3, "shuffle_buffer": 1000},
        {"factor": 3, "batch_size": 4, "shuffle_buffer": 9, "unique_in_batch": True},
        {"factor": 3, "batch_size": 4, "shuffle_buffer": 9, "drop_last": True},
        {"factor": 3, "batch_size": 4, "shuffle_buffer": 9, "epochs": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("items", "kind"),
    [(40, Unreadable), (1, KeyboardInterrupt), (5, GeneratorExit), (10, pyecho.SpecMismatch)],
)
def test_every_use_of_what_came_before_is_emitted_then_the_same_exception(
    device, echo, arguments, items, kind
):
    error = kind("a.png")
    on_host = pyecho.torch.EchoLoader(failing_source(items, kind()), **arguments)
    expected, _ = emitted_before(kind, on_host)
    loader = pyecho.torch.EchoLoader(
        failing_source(items, error), **arguments, device=Device("cuda:0", echo=echo)
    )
    emitted, raised = emitted_before(kind, loader)
    assert emitted == expected
    assert (raised is error) == (kind is not pyecho.SpecMismatch)
    stats = loader.stats()
    rows = sum(map(len, expected))
    assert (stats.read, stats.emitted, stats.batches) == (items, rows, len(expected))


@pytest.mark.parametrize("echo", [False, True])
def test_once_handled_the_error_is_kept_by_nobody(device, echo):
    # An iterator's frame would keep the exception that it raised, and be kept by it.
    class Source:
        def __init__(self):
            self.rows = list(map(row, range(5)))

        def __iter__(self):
            return self

        def __next__(self):
            if not self.rows:
                raise Unreadable
            return self.rows.pop()

    loader = pyecho.torch.EchoLoader(Source(), 2, batch_size=4, device=Device("cuda:0", echo=echo))
    gc.collect()
    gc.disable()
    try:
        try:
            list(loader)
        except Unreadable as error:
            watched = weakref.ref(error)
        loader.close()
        assert watched() is None
    finally:
        gc.enable()


# ---------------------------------------------------------------- of the device


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_that_fails_is_the_error_of_the_consumer_and_the_next_epoch_is_whole(
    device, way, monkeypatch
):
    source = [row(number) for number in range(12)]
    loader = pyecho.torch.EchoLoader(source, 2, **WAYS[way])
    expected = len(list(loader))
    for nth in range(1, HostHandOver.copies + 1):
        monkeypatch.setattr(HostHandOver, "failing", HostHandOver.copies + nth)
        emitted = []
        with pytest.raises(RuntimeError, match="the copy failed"):
            emitted.extend(loader)
        assert len(emitted) < expected
        assert len(list(loader)) == expected


@pytest.mark.parametrize("nth", [1, 4])
def test_an_error_of_the_device_does_not_wait_for_the_end_of_the_pool(device, monkeypatch, nth):
    monkeypatch.setattr(HostHandOver, "failing", nth)
    loader = pyecho.torch.EchoLoader(
        failing_source(20, Unreadable()), 50, batch_size=4, device=Device("cuda:0", echo=True)
    )
    emitted, _ = emitted_before(RuntimeError, loader)
    assert len(emitted) <= nth


@pytest.mark.parametrize("way", WAYS)
def test_once_pinned_memory_runs_out_batches_cross_from_pageable_memory(device, monkeypatch, way):
    left = [1]

    def allocate(size_bytes):
        if not left:
            raise pyecho.CudaError("no more")
        left.pop()
        return torch.empty(size_bytes, dtype=torch.uint8)

    source = [row(number) for number in range(60)]
    arguments = {"factor": 2, "shuffle_buffer": 9} | WAYS[way]
    expected = plain(pyecho.torch.EchoLoader(source, **arguments))
    monkeypatch.setattr("pyecho.torch.TorchAdapter.allocate", staticmethod(allocate))
    monkeypatch.setattr("pyecho.cuda.why_not", lambda: "")
    monkeypatch.setattr("pyecho.device.pinned.Mark.passed", lambda mark: False)  # none comes back
    with pytest.warns(RuntimeWarning, match="pageable memory.*no more"):
        assert plain(pyecho.torch.EchoLoader(source, **arguments)) == expected
