"""The index ring against atomic_queue, moodycamel and boost::lockfree (see benchmarks/cpp)."""

import json
import os
import shutil
import subprocess

import pytest

from pyecho.bench.row import Row
from pyecho.bench.sampling import Sample


def test_rings(measured, rounds):
    program = shutil.which(os.environ.get("PYECHO_RING_BENCHMARK", "ring_benchmark"))
    if program is None:
        pytest.skip("ring_benchmark is not built: PYECHO_RING_BENCHMARK names it")

    def measure(_):
        output = subprocess.run(
            [program, str(rounds)], capture_output=True, text=True, check=True, timeout=1200
        ).stdout
        document = json.loads(output)
        rows = []
        for shape in document["shapes"]:
            samples = {
                name: Sample(tuple(seconds)).times(1e9 / document["items"])
                for name, seconds in shape["seconds"].items()
            }
            ours = samples.pop("pyecho")
            grouped = samples.pop("pyecho, groups of 32")
            shown = f"{shape['producers']} to {shape['consumers']}"
            best = min(samples, key=lambda name: samples[name].median, default=None)
            if best is None:
                rows.append(Row(f"{shown}: pyecho, alone", ours, "ns"))
            rows.append(
                Row(f"{shown}: groups of 32", grouped, "ns", ours, "pyecho", ours / grouped)
            )
            for name, theirs in samples.items():
                target = ">= 1.0" if name == best else ""
                rows.append(
                    Row(f"{shown}: pyecho", ours, "ns", theirs, name, theirs / ours, target)
                )
        return rows

    assert measured("Rings, per item", measure)
