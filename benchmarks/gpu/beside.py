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
from functools import partial
from typing import Any

import numpy as np
import torch

import pyecho.torch
from gpu.setup import Scale, seconds_of_batches
from pyecho.bench.report import Report
from pyecho.bench.row import Row
from pyecho.bench.sampling import Sample, interleaved, turns

LEAVES = (1, 20)
ROWS, ROW_BYTES, BATCH, FACTOR = 12_800, 4096, 64, 4
PLACES = ("alone", "beside")  # a thread of plain Python
TITLE = f"Beside a thread of plain Python, batches of {BATCH} x {ROW_BYTES} bytes"


@contextlib.contextmanager
def at(where: str) -> Iterator[None]:
    """Run a thread that holds the GIL whenever it can, unless alone."""
    ended = threading.Event()

    def count() -> None:
        while not ended.is_set():
            for _ in range(1000):
                pass

    thread = threading.Thread(target=count)
    if where == "beside":
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if where == "beside":
            thread.join()


def measure(device: torch.device, report: Report, scale: Scale) -> None:
    """Measure batches a second of both kinds of echo, with few and many leaves."""
    views = interleaved("views", scale.rounds, {where: partial(_views, where) for where in PLACES})
    name = "a view of a host tensor, made and dropped"
    report.add(TITLE, [Row(name, views["beside"], "views/s", views["alone"], "alone")])
    counts = {"host": scale.small.batches, "device": max(4, scale.small.batches // 20)}
    for place, leaves in itertools.product(counts, LEAVES):
        rows = {str(n): np.zeros((ROWS, ROW_BYTES // leaves), np.uint8) for n in range(leaves)}
        there = pyecho.torch.Device(device, echo=place == "device")
        options: Any = {"batch_size": BATCH, "shuffle_buffer": 256, "device": there}
        name = f"echoed on the {place}, {leaves} leaves"
        with pyecho.torch.EchoLoader(rows, FACTOR, **options) as loader:
            batches = itertools.chain.from_iterable(itertools.repeat(loader))
            run = partial(_rate, device, batches, counts[place])
            contestants = {where: partial(run, where) for where in PLACES}
            found = turns(f"beside plain Python, {name}", scale.rounds, contestants)
        rates = {where: Sample(tuple(rate for rate, _ in found[where])) for where in PLACES}
        inside = {where: Sample(tuple(us for _, us in found[where])) for where in PLACES}
        alone, target = "the same loader alone", ">= 0.8"
        report.add(
            TITLE,
            [
                Row(name, rates["beside"], "batches/s", rates["alone"], alone, target=target),
                Row(f"{name}, in next()", inside["beside"], "us a batch", inside["alone"], alone),
            ],
        )


def _rate(
    device: torch.device, batches: Iterator[Any], count: int, where: str
) -> tuple[float, float]:
    """Return batches a second, and the microseconds inside `next()` for each."""
    inside: list[float] = []

    def clocked() -> Iterator[Any]:
        while True:
            began = time.perf_counter()
            batch = next(batches)
            inside.append(time.perf_counter() - began)
            yield batch
            del batch

    with at(where):
        seconds = seconds_of_batches(device, clocked(), count)
    return count / seconds, 1e6 * sum(inside) / len(inside)


def _views(where: str) -> float:
    """Return how many views of a tensor are made and dropped in a second."""
    tensor, count = torch.zeros(1), 0
    with at(where):
        began = time.perf_counter()
        while (spent := time.perf_counter() - began) < 0.5:
            for _ in range(10):
                tensor.view(-1)
            count += 10
    return count / spent
