"""Batches a second while another thread runs plain Python, as most training loops do.

PyTorch lets go of the GIL whenever a tensor is dropped, and each time may cost 5 ms beside such a
thread, whoever made the tensor. So views that are made and dropped have a row, and the time that a
batch spends inside `next()`.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np
import torch

import pyecho.torch
from gpu.measuring import seconds_of_batches
from gpu.workload import Scale
from pyecho.bench.report import Report
from pyecho.bench.row import Row
from pyecho.bench.sampling import Sample, interleaved

LEAVES = (1, 20)
ROWS, ROW_BYTES, BATCH, FACTOR = 12_800, 4096, 64, 4
PLACES = ("alone", "beside")  # a thread of plain Python
VIEWS_S = 0.5


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


def measure(device: torch.device, report: Report, scale: Scale) -> None:
    """Measure batches a second of both kinds of echo, with few and many leaves."""
    counts = {"host": scale.small.batches, "device": max(4, scale.small.batches // 20)}

    def loader(leaves: int, place: str) -> pyecho.torch.EchoLoader:
        rows = {str(n): np.zeros((ROWS, ROW_BYTES // leaves), np.uint8) for n in range(leaves)}
        there = pyecho.torch.Device(device, echo=place == "device")
        return pyecho.torch.EchoLoader(
            rows, FACTOR, batch_size=BATCH, shuffle_buffer=256, device=there
        )

    title = f"Beside a thread of plain Python, batches of {BATCH} x {ROW_BYTES} bytes"
    views = interleaved("views", scale.rounds, {where: partial(_views, where) for where in PLACES})
    name = "a view of a host tensor, made and dropped"
    report.add(title, [Row(name, views["beside"], "views/s", views["alone"], "alone")])
    for place, leaves in itertools.product(counts, LEAVES):
        count = counts[place]
        inside_us: dict[str, list[float]] = {where: [] for where in PLACES}
        with loader(leaves, place) as batches:
            clocked = _Clocked(itertools.chain.from_iterable(itertools.repeat(batches)))

            def rate(
                where: str,
                count: int = count,
                clocked: _Clocked = clocked,
                inside_us: dict[str, list[float]] = inside_us,
            ) -> float:
                with _at(where):
                    clocked.batches = clocked.inside_s = 0
                    seconds = seconds_of_batches(device, clocked, count)
                inside_us[where].append(clocked.inside_s / clocked.batches * 1e6)
                return count / seconds

            name = f"echoed on the {place}, {leaves} leaves"
            rates = interleaved(
                f"beside plain Python, {name}",
                scale.rounds,
                {where: partial(rate, where) for where in inside_us},
            )
        inside = {where: Sample(tuple(times)) for where, times in inside_us.items()}
        alone = "the same loader alone"
        report.add(
            title,
            [
                Row(name, rates["beside"], "batches/s", rates["alone"], alone, target=">= 0.8"),
                Row(f"{name}, in next()", inside["beside"], "us a batch", inside["alone"], alone),
            ],
        )


def _at(where: str) -> AbstractContextManager[None]:
    return plain_python() if where == "beside" else contextlib.nullcontext()


def _views(where: str) -> float:
    """Return how many views of a tensor are made and dropped in a second."""
    tensor, count = torch.zeros(1), 0
    with _at(where):
        began = time.perf_counter()
        while (spent := time.perf_counter() - began) < VIEWS_S:
            for _ in range(10):
                tensor.view(-1)
            count += 10
    return count / spent


class _Clocked:
    """Batches, and the time inside `next()`."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches
        self.batches = 0
        self.inside_s = 0.0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        began = time.perf_counter()
        batch = next(self._batches)
        self.inside_s += time.perf_counter() - began
        self.batches += 1
        return batch
