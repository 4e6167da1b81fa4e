"""Times work on a device: after a warm-up, and with the device idle at both ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
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
