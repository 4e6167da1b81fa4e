"""The loader's use of the link, and the cost of copies to the consumer."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch

import pyecho.torch
from gpu import setup
from gpu.setup import Rows, Scale, seconds, seconds_of_batches
from pyecho.bench.report import Report
from pyecho.bench.row import Row
from pyecho.bench.sampling import Sample, interleaved

PINNED_BATCHES = 8
FACTOR = 4
PRIORITIES = {"lowest": 0, "highest": -100}
"""Of pyecho's streams; the first is what it has."""
PRODUCTS = 8
"""Of matrices, in a step beside a pool on the device."""


def measure(device: torch.device, report: Report, scale: Scale) -> None:
    """Measure GB/s from host to device, for both sizes of rows."""
    for rows in (scale.large, scale.small):
        _measure_rows(device, report, rows, scale)


def _measure_rows(device: torch.device, report: Report, rows: Rows, scale: Scale) -> None:
    pinned = setup.pinned_batches(rows, PINNED_BATCHES)
    targets = [torch.empty_like(batch, device=device) for batch in pinned[:2]]
    copies: Any = torch.cuda.Stream(device)
    array = setup.random_rows(rows, scale.source_bytes)
    gigabytes = rows.batches * rows.batch_bytes * 1e-9

    def raw() -> None:
        with torch.cuda.stream(copies):
            for number in range(rows.batches):
                targets[number % 2].copy_(pinned[number % PINNED_BATCHES], non_blocking=True)

    def examples(**where: Any) -> pyecho.torch.EchoLoader:
        return pyecho.torch.EchoLoader(
            setup.endless_batches(array, rows.batch),
            FACTOR,
            batch_size=rows.batch,
            unbatch=True,
            shuffle_buffer=rows.pool,
            **where,
        )

    with contextlib.ExitStack() as stack:
        loaders = {
            "batches": pyecho.torch.EchoLoader(itertools.cycle(pinned), 1, device=device),
            "examples": examples(device=device),
            "on the host": examples(pin_memory=False),
        }
        iterators = {name: iter(stack.enter_context(each)) for name, each in loaders.items()}

        def taking(name: str) -> Callable[[], float]:
            return lambda: gigabytes / seconds_of_batches(device, iterators[name], rows.batches)

        contestants = {"raw": lambda: gigabytes / seconds(device, raw)}
        contestants |= {name: taking(name) for name in loaders}
        rates = interleaved(f"link, {rows.name}", scale.rounds, contestants)
    raws, size = rates["raw"], f"{rows.batch} x {rows.name}"
    both = raws.combined(min, rates["on the host"])
    limit, slower = "raw pinned copies", "the slower of raw copies and the loader on the host"
    what = f"example echoing, e = {FACTOR}, {size}"
    report.add(
        "Host to device",
        [
            Row(
                f"batch echoing, e = 1, from pinned batches, {size}",
                rates["batches"],
                "GB/s",
                raws,
                limit,
                target=">= 0.97",
            ),
            Row(what, rates["examples"], "GB/s", both, slower),
            Row(what, rates["examples"], "GB/s", raws, limit),
        ],
    )


def measure_overlap(device: torch.device, report: Report, scale: Scale) -> None:
    """Measure a step that computes 1.5 times as long as its batch takes to copy."""
    rows = scale.large
    pinned = setup.pinned_batches(rows, PINNED_BATCHES)
    resident = pinned[0].to(device)
    target = torch.empty_like(resident)
    matrix = torch.randn(scale.matrix, scale.matrix, device=device, dtype=torch.bfloat16)

    def compute(batch: torch.Tensor, products: int) -> torch.Tensor:
        result = batch[:, ::64].float().sum()
        for _ in range(products):
            torch.mm(matrix, matrix)
        return result

    def copy_all() -> None:
        for number in range(rows.batches):
            target.copy_(pinned[number % PINNED_BATCHES], non_blocking=True)

    compute(resident, 8)
    seconds(device, copy_all)
    copy_seconds = seconds(device, copy_all) / rows.batches
    product_seconds = seconds(device, lambda: compute(resident, 50)) / 50
    products = max(1, round(1.5 * copy_seconds / product_seconds))

    with contextlib.ExitStack() as stack:
        loader = pyecho.torch.EchoLoader(itertools.cycle(pinned), 1, device=device)
        resident_name = "the batch is there"
        iterators: dict[str, Iterator[torch.Tensor]] = {
            resident_name: itertools.repeat(resident),
            "pyecho, batch echoing, e = 1": iter(stack.enter_context(loader)),
            "prefetching on a stream, as timm does": setup.prefetched(
                itertools.cycle(pinned), device
            ),
            "copies on the consumer's stream": setup.copied(itertools.cycle(pinned), device),
        }

        def steps(name: str) -> Callable[[], float]:
            computed = (compute(batch, products) for batch in iterators[name])
            return lambda: 1e3 * seconds_of_batches(device, computed, rows.batches) / rows.batches

        times = interleaved("overlap", scale.rounds, {name: steps(name) for name in iterators})
    alone = times.pop(resident_name)
    report.add(
        "Overlap: time of a step whose batch is copied meanwhile",
        [
            Row(name, found, "ms", alone, resident_name, target="<= 1.03" * ("pyecho" in name))
            for name, found in times.items()
        ],
    )
    share = Sample((copy_seconds * 1e3,)).median / alone.median
    report.note(f"overlap: a copy takes {share:.2f} of a step")


def measure_priorities(device: torch.device, report: Report, scale: Scale) -> None:
    """Measure a step beside a pool on the device, whose gathers have one priority or the other."""
    rows = scale.large
    array = setup.random_rows(rows, scale.source_bytes)
    matrix = torch.randn(scale.matrix, scale.matrix, device=device, dtype=torch.bfloat16)
    resident = torch.from_numpy(array[: rows.batch]).to(device)

    def compute(batch: torch.Tensor) -> torch.Tensor:
        for _ in range(PRODUCTS):
            torch.mm(matrix, matrix)
        return batch[:, ::64].float().sum()

    alone = "the batch is there"
    with contextlib.ExitStack() as stack:
        iterators: dict[str, Iterator[torch.Tensor]] = {alone: itertools.repeat(resident)}
        for name, priority in PRIORITIES.items():
            loader = pyecho.torch.EchoLoader(
                setup.endless_batches(array, rows.batch),
                8,
                batch_size=rows.batch,
                unbatch=True,
                shuffle_buffer=rows.pool,
                device=pyecho.torch.Device(device, echo=True),
            )
            with mock.patch("pyecho.cuda._PRIORITY", priority):
                iterators[f"{name} priority"] = batches = iter(stack.enter_context(loader))
                next(batches)  # makes the stream

        def steps(name: str) -> Callable[[], float]:
            computed = map(compute, iterators[name])
            return lambda: 1e3 * seconds_of_batches(device, computed, rows.batches) / rows.batches

        times = interleaved("priorities", scale.rounds, {name: steps(name) for name in iterators})
    resident_times = times.pop(alone)
    section = "Priority of pyecho's streams: time of a step beside a pool on the device"
    report.add(
        section, [Row(name, found, "ms", resident_times, alone) for name, found in times.items()]
    )
