"""Example echoing against bare memcpy, one thing varied at a time."""

import dataclasses
import os

import pytest

from pyecho.bench import gather

USUAL = gather.Workload(3072)
SWEEPS = {
    "Rows": [
        *(
            dataclasses.replace(USUAL, row_bytes=row_bytes)
            for row_bytes in (64, 256, 1024, 3072, 12_288, 49_152)
        ),
        dataclasses.replace(USUAL, row_bytes=150_528, capacity=1024),
        dataclasses.replace(USUAL, row_bytes=602_112, capacity=256, batch_size=64),
    ],
    "Echo factor": [dataclasses.replace(USUAL, factor=factor) for factor in (1, 2, 4, 8, 16)],
    "Batch size": [dataclasses.replace(USUAL, batch_size=rows) for rows in (16, 64, 256, 1024)],
    "Capacity, 256 B rows": [
        dataclasses.replace(USUAL, row_bytes=256, capacity=capacity)
        for capacity in (100, 1000, 10_000, 100_000, 1_000_000)
    ],
    "Capacity, 3 KB rows": [
        dataclasses.replace(USUAL, capacity=capacity) for capacity in (100, 1000, 10_000, 100_000)
    ],
    "Threads": [
        dataclasses.replace(USUAL, row_bytes=row_bytes, threads=threads, capacity=capacity)
        for row_bytes, capacity in ((256, 4096), (1024, 4096), (3072, 4096), (150_528, 1024))
        for threads in sorted({0, 1, 2, min(4, os.cpu_count() or 1)})
    ],
}


@pytest.mark.parametrize(
    ("section", "workload"),
    [
        pytest.param(section, workload, id=f"{section}-{workload.name()}".replace(" ", "_"))
        for section, workloads in SWEEPS.items()
        for workload in workloads
    ],
)
def test_gather(section, workload, measured, rounds):
    rows = measured(
        f"Gather: {section}",
        lambda progress: gather.measure(rounds, progress, [workload], every_core=section == "Rows"),
    )
    assert rows[0].measured.values
