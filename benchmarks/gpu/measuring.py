"""Times work on a device: after a warm-up, and with the device idle at both ends."""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

WARM_UP_BATCHES = 12
"""More than any contestant makes ahead, so that no stock is counted."""


def new_stream(device: torch.device) -> Any:
    """Return a stream; PyTorch's is untyped."""
    make: Any = torch.cuda.Stream
    return make(device)


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished all its work."""
    torch.cuda.synchronize(device)


def seconds(device: torch.device, work: Callable[[], Any]) -> float:
    """Return the time of `work`, including the work that it queues on the device."""
    synchronize(device)
    began = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - began


def seconds_of_batches(device: torch.device, batches: Iterator[Any], count: int) -> float:
    """Return how long it takes to get `count` batches from an endless iterator, dropping each."""
    for _ in range(WARM_UP_BATCHES):
        next(batches)

    def take() -> None:
        for _ in range(count):
            next(batches)

    return seconds(device, take)


def bytes_over_link(device: torch.device, batches: Iterable[Any]) -> int:
    """Take all batches; return the bytes that went to the device, as Kineto counts; 0 without it.

    It asks the driver (by CUPTI), whose records have each copy with its bytes.
    """
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
    counts = False
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(RuntimeError):  # there is no CUPTI
            stack.enter_context(profiler)
            counts = True
        for _ in batches:
            pass
        synchronize(device)
    if not counts:
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    return sum(
        event["args"]["bytes"]
        for event in events
        if event.get("cat") == "gpu_memcpy" and event["name"].startswith("Memcpy HtoD")
    )
