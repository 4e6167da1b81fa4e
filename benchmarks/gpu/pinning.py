"""The speed of pinning memory."""

from __future__ import annotations

import time

import torch
from common.report import Report

from pyecho import _core
from pyecho.bench.formatting import spread
from pyecho.bench.row import Row
from pyecho.bench.sampling import Progress, Sample, interleaved, steps_of


def measure(device: torch.device, report: Report, progress: Progress, *, quick: bool) -> None:
    """Allocate and free pinned memory of the same size with pyecho and PyTorch."""
    size_bytes = (256 << 20) if quick else (1 << 30)  # a power of two: PyTorch rounds up to one
    rounds = 3 if quick else 5
    give_back = getattr(torch._C, "_host_emptyCache", None)
    registering: list[float] = []

    def with_pyecho() -> float:
        began = time.perf_counter()
        registering.append(_core.cuda_pinning_seconds(device.index, size_bytes))
        return size_bytes / (time.perf_counter() - began) / 2**30

    def with_pytorch() -> float:
        began = time.perf_counter()
        memory = torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)
        del memory
        if give_back is not None:
            give_back()
        return size_bytes / (time.perf_counter() - began) / 2**30

    if give_back is None:
        report.note("pinning: this PyTorch keeps pinned memory for ever, so it is not compared")
        contestants = {"pyecho": with_pyecho}
    else:
        contestants = {"pyecho": with_pyecho, "PyTorch": with_pytorch}
    progress.begin("pinning", steps_of(rounds, len(contestants)))
    rates = interleaved(rounds, contestants, progress)
    name = f"{size_bytes >> 20} MiB of pinned memory, obtained and given back"
    torch_rate = rates.get("PyTorch")
    report.add(
        "Pinned memory",
        [
            Row(
                name,
                rates["pyecho"],
                "GiB/s",
                limit=torch_rate,
                limit_name="torch.empty(pin_memory=True)" if torch_rate else "",
                target=">= 1" if torch_rate else "",
            )
        ],
    )
    rate = Sample(tuple(size_bytes / each / 2**30 for each in registering[1:]))
    report.note(f"pinning: registering memory that has been touched: {spread(rate, 'GiB/s')}")
