"""Captures CUDA graphs beside a running loader, each in a process of its own.

A capture that fails leaves PyTorch's allocator and current stream in a state that no further test
should meet.
"""

import threading
import time

import torch
from torn import values_of
from waiting import wait_until

import pyecho
import pyecho.torch
from pyecho.torch import Device

ROW_BYTES = 128 << 10
BATCH = 256  # batches of 32 MiB, for which PyTorch has to ask the driver after empty_cache()
BATCHES = 6
DEVICE = torch.device("cuda", 0)
ECHOING, CONVERTING = Device(DEVICE, echo=True), Device(DEVICE, dtype=torch.bfloat16)
WAYS = {
    "batches": {},
    "examples on the host": {"batch_size": BATCH, "shuffle_buffer": 0},
    "examples on the device": {"batch_size": BATCH, "shuffle_buffer": 0, "device": ECHOING},
    "converted": {"batch_size": BATCH, "shuffle_buffer": 0, "device": CONVERTING},
    "batches made there": {},
}


class Source:
    """Items of a constant each; stops after some until it is told to go on."""

    def __init__(self, batched, first, count, device):
        self.gate = threading.Event()
        self._device = device
        self._first = first
        self._count = count
        self._shape = (BATCH, ROW_BYTES) if batched else (ROW_BYTES,)

    def __iter__(self):
        for number in range(self._count):
            if number == self._first:
                self.gate.wait()
            yield torch.full(self._shape, number % 251, dtype=torch.uint8, device=self._device)


def while_threads_run(way):
    """Capture, in the mode that forbids unsafe calls to all threads, while batches are uploaded."""
    batched = not WAYS[way]
    per_batch = 1 if batched else BATCH
    there = DEVICE if way == "batches made there" else None
    source = Source(batched, 2 * per_batch, BATCHES * per_batch, there)
    options = {"device": DEVICE, "prefetch": 4, **WAYS[way]}
    loader = pyecho.torch.EchoLoader(source, 1, **options)
    batches = iter(loader)
    try:
        taken = [next(batches) for _ in range(2)]
        static = taken[0].clone()
        side = torch.cuda.Stream(DEVICE)  # PyTorch wants a warm-up on another stream
        side.wait_stream(torch.cuda.current_stream(DEVICE))
        with torch.cuda.stream(side):
            values_of(static)
        torch.cuda.current_stream(DEVICE).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        before = loader.stats()
        with torch.cuda.graph(graph):
            result = values_of(static)
            source.gate.set()
            went_on = wait_until(
                lambda: (
                    loader.stats().read > before.read
                    if batched  # items are sent by next()
                    else loader.stats().h2d_bytes >= before.h2d_bytes + BATCH * ROW_BYTES
                )
            )
            time.sleep(0.3)  # for some more of what the threads do
            result = result + 0
    finally:
        source.gate.set()
    assert went_on, "no batch came during the capture"
    taken += list(batches)
    seen = []
    for batch in taken:
        static.copy_(batch)
        graph.replay()
        seen.append(result.clone())
    expected = [number % 251 for number in range(BATCHES * BATCH)]
    if batched:
        expected = [number for number in range(BATCHES) for _ in range(BATCH)]
    assert torch.cat(seen).tolist() == expected


def dropping_pinned_batches():
    """Drop a pinned batch that a copy has read while the current stream is captured."""
    rows = [torch.full((1000,), number % 251, dtype=torch.uint8) for number in range(400)]
    options = {"batch_size": 4, "shuffle_buffer": 0, "pin_memory": True}
    batches = iter(pyecho.torch.EchoLoader(rows, 1, **options))
    batch = next(batches)
    seen = [batch.to(DEVICE, non_blocking=True)]
    static = torch.ones(8, device=DEVICE)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = static * 2
        del batch
    for batch in batches:
        seen.append(batch.to(DEVICE, non_blocking=True))
        del batch
    graph.replay()
    assert result.tolist() == [2.0] * 8
    values = torch.cat(seen)
    assert (values == values[:, :1]).all()
    assert values[:, 0].tolist() == [number % 251 for number in range(400)]


def waiting(way, before):
    """Take a batch during the capture, after `before` others; it comes after the capture."""
    rows = [torch.full((1000,), number, dtype=torch.uint8) for number in range(40)]
    options = {"device": DEVICE} | WAYS[way] | ({"batch_size": 4} if WAYS[way] else {})
    batches = iter(pyecho.torch.EchoLoader(rows, 1, **options))
    taken = [next(batches) for _ in range(before)]
    static = torch.ones(8, device=DEVICE)
    refused = ""
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            static.add_(1)
            try:
                next(batches)
            except (RuntimeError, pyecho.EchoError) as error:
                refused = str(error)
    except RuntimeError:  # the capture has been invalidated, as by any forbidden call
        pass
    torch.cuda.set_stream(torch.cuda.default_stream(DEVICE))
    assert "CUDA error" in refused or "captures a CUDA graph" in refused, refused
    taken += batches
    rows = torch.cat([batch.reshape(-1, 1000) for batch in taken])
    assert values_of(rows).tolist() == list(range(40))
