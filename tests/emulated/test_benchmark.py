"""benchmarks/gpu.py from end to end: what it writes, not what it measures."""

import json
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "gpu.py"
SECTIONS = {
    "link": ["Host to device"],
    "overlap": ["Overlap: time of a step whose batch is copied meanwhile"],
    "emission": ["Emission, 150 KB rows, batches of 8", "Emission, 3 KB rows, batches of 32"],
    "beside": ["Beside a thread of plain Python, batches of 64 x 4096 bytes"],
    "training": ["Training a ResNet-50, batches of 2"],
}


@pytest.mark.parametrize(
    "names",
    ["link,overlap,emission,beside", pytest.param("training", marks=pytest.mark.stress)],
)
def test_every_measurement_has_its_rows_beside_their_limits(program, tmp_path, names):
    options = ["--quick", "--only", names, "--output", tmp_path]
    ended = program(BENCHMARK, *options, device_limit=2_900_000_000)
    assert ended.returncode == 0, ended.stderr
    [table] = tmp_path.glob("gpu-emulated-*-partial.md")
    results = json.loads(table.with_suffix(".json").read_text())
    sections = [section for name in names.split(",") for section in SECTIONS[name]]
    assert list(dict.fromkeys(row["section"] for row in results["rows"])) == sections
    assert all(f"## {section}" in table.read_text() for section in sections)
    assert not any("failed" in note for note in results["notes"]), results["notes"]
