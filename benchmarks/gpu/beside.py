"""Batches a second while another thread runs plain Python, as most training loops do."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

import pyecho.torch
from gpu.measuring import seconds_of_batches
from gpu.workload import Scale
from pyecho.bench.report import Report
from pyecho.bench.row import Row
from pyecho.bench.sampling import Progress, interleaved

LEAVES = (1, 20)
ROWS, ROW_BYTES, BATCH, FACTOR = 12_800, 4096, 64, 4


@contextlib.contextmanager
def plain_python() -> Iterator[None]:
    """Run a thread that holds the GIL whenever it can."""
    ended = threading.Event()

    def count() -> None:
        while not ended.is_set():
            for _ in range(1000):
                pass

    thread = threading.Thread(target=count)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def measure(device: torch.device, report: Report, progress: Progress, scale: Scale) -> None:
    """Measure batches a second of both kinds of echo, with few and many leaves."""
    counts = {"host": scale.small.batches, "device": max(4, scale.small.batches // 20)}

    def loader(leaves: int, echo_on: Any) -> pyecho.torch.EchoLoader:
        rows = {str(n): np.zeros((ROWS, ROW_BYTES // leaves), np.uint8) for n in range(leaves)}
        return pyecho.torch.EchoLoader(
            rows, FACTOR, batch_size=BATCH, shuffle_buffer=256, device=device, echo_on=echo_on
        )

    for echo_on, leaves in itertools.product(("host", "device"), LEAVES):
        count = counts[echo_on]
        with loader(leaves, echo_on) as batches:
            endless = itertools.chain.from_iterable(itertools.repeat(batches))

            def alone(endless: Iterator[Any] = endless, count: int = count) -> float:
                return count / seconds_of_batches(device, endless, count)

            def beside(alone: Callable[[], float] = alone) -> float:
                with plain_python():
                    return alone()

            name = f'echo_on="{echo_on}", {leaves} leaves'
            rates = interleaved(
                f"beside plain Python, {name}",
                scale.rounds,
                {"alone": alone, "beside": beside},
                progress,
            )
        report.add(
            f"Beside a thread of plain Python, batches of {BATCH} x {ROW_BYTES} bytes",
            [
                Row(
                    name,
                    rates["beside"],
                    "batches/s",
                    rates["alone"],
                    "the same loader alone",
                    target=">= 0.8",
                )
            ],
        )
