"""The loader's use of the link, and the cost of copies to the consumer."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch

import pyecho.torch
from gpu import peers, workload
from gpu.measuring import new_stream, seconds, seconds_of_batches
from gpu.workload import Rows, Scale
from pyecho.bench.report import Report
from pyecho.bench.row import Row
from pyecho.bench.sampling import Sample, interleaved

PINNED_BATCHES = 8
FACTOR = 4


def measure(device: torch.device, report: Report, scale: Scale) -> None:
    """Measure GB/s from host to device, for both sizes of rows."""
    for rows in (scale.large, scale.small):
        _measure_rows(device, report, rows, scale)


def _measure_rows(device: torch.device, report: Report, rows: Rows, scale: Scale) -> None:
    rounds = scale.rounds
    pinned = workload.pinned_batches(rows, PINNED_BATCHES)
    pageable = [batch.clone() for batch in pinned]
    targets = [torch.empty_like(batch, device=device) for batch in pinned[:2]]
    copies = new_stream(device)
    array = workload.random_rows(rows, scale.source_bytes)
    gigabytes = rows.batches * rows.batch_bytes * 1e-9

    def raw() -> None:
        with torch.cuda.stream(copies):
            for number in range(rows.batches):
                targets[number % 2].copy_(pinned[number % PINNED_BATCHES], non_blocking=True)

    def from_pageable() -> None:
        for number in range(rows.batches):
            pageable[number % PINNED_BATCHES].to(device)

    def examples(**where: Any) -> pyecho.torch.EchoLoader:
        return pyecho.torch.EchoLoader(
            workload.endless_batches(array, rows.batch),
            FACTOR,
            batch_size=rows.batch,
            unbatch=True,
            shuffle_buffer=rows.pool,
            **where,
        )

    with contextlib.ExitStack() as stack:
        batch_loader = pyecho.torch.EchoLoader(itertools.cycle(pinned), 1, device=device)
        loaders = {
            "batch echoing": batch_loader,
            "example echoing": examples(device=device),
            "gathered on the host": examples(pin_memory=False),
        }
        iterators = {name: iter(stack.enter_context(each)) for name, each in loaders.items()}

        def taking(name: str) -> Callable[[], float]:
            return lambda: gigabytes / seconds_of_batches(device, iterators[name], rows.batches)

        contestants: dict[str, Callable[[], float]] = {
            "raw": lambda: gigabytes / seconds(device, raw),
            "pageable": lambda: gigabytes / seconds(device, from_pageable),
            **{name: taking(name) for name in loaders},
        }
        rates = interleaved(f"link, {rows.name}", rounds, contestants)
    raw_rate = rates["raw"]
    size = f"{rows.batch} x {rows.name}"
    both = raw_rate.combined(min, rates["gathered on the host"])
    report.add(
        "Host to device",
        [
            Row(
                f"batch echoing, e = 1, from pinned batches, {size}",
                rates["batch echoing"],
                "GB/s",
                raw_rate,
                "raw pinned copies",
                target=">= 0.97",
            ),
            Row(
                f"example echoing, e = {FACTOR}, {size}",
                rates["example echoing"],
                "GB/s",
                both,
                "the slower of raw pinned copies and the same loader without a device",
            ),
            Row(
                f"example echoing, e = {FACTOR}, {size}",
                rates["example echoing"],
                "GB/s",
                raw_rate,
                "raw pinned copies",
            ),
            Row(
                f"tensor.to(device) from pageable memory, {size}",
                rates["pageable"],
                "GB/s",
                raw_rate,
                "raw pinned copies",
            ),
        ],
    )


def measure_overlap(device: torch.device, report: Report, scale: Scale) -> None:
    """Measure a step that computes 1.5 times as long as its batch takes to copy."""
    rows, rounds = scale.large, scale.rounds
    pinned = workload.pinned_batches(rows, PINNED_BATCHES)
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
        iterators: dict[str, Iterator[torch.Tensor]] = {
            "resident batch": itertools.repeat(resident),
            "pyecho": iter(stack.enter_context(loader)),
            "stream prefetching": peers.stream_prefetched(itertools.cycle(pinned), device),
            "non_blocking": peers.copied(itertools.cycle(pinned), device),
        }
        if peers.has("spdl"):
            iterators["SPDL"] = peers.transferred_by_spdl(itertools.cycle(pinned), device)
        else:
            report.note("overlap: SPDL is not installed (pip install spdl-io)")
        if peers.has("nvidia.dali"):
            iterators["DALI"] = peers.fed_by_dali(itertools.cycle(pinned), rows.batch, device)
        else:
            report.note("overlap: DALI is not installed (pip install nvidia-dali-cuda120)")

        def steps(name: str) -> Callable[[], float]:
            computed = (compute(batch, products) for batch in iterators[name])
            return lambda: 1e3 * seconds_of_batches(device, computed, rows.batches) / rows.batches

        contestants = {name: steps(name) for name in iterators}
        times = interleaved("overlap", rounds, contestants)
    names = {
        "pyecho": ("pyecho, batch echoing, e = 1", "<= 1.03"),
        "stream prefetching": ("prefetching on a stream, as timm does", ""),
        "non_blocking": ("copies on the consumer's stream", ""),
        "SPDL": ("spdl.io.transfer_tensor_h2d in a thread", ""),
        "DALI": ("DALI, external_source(...).gpu()", ""),
    }
    names = {name: about for name, about in names.items() if name in times}
    report.add(
        "Overlap: time of a step whose batch is copied meanwhile",
        [
            Row(what, times[name], "ms", times["resident batch"], "the batch is there", target=to)
            for name, (what, to) in names.items()
        ],
    )
    copies = Sample((copy_seconds * 1e3,) * rounds)
    report.add(
        "Overlap: share of the copy's time that is hidden",
        [
            Row(what, (copies + times["resident batch"] - times[name]) / copies, "")
            for name, (what, _) in names.items()
        ],
    )
    report.note(f"overlap: a copy takes {(copies / times['resident batch']).median:.2f} of a step")
