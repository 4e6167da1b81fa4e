"""benchmarks/gpu_day.py: what it writes, not what it measures."""

import json
from pathlib import Path

import pytest

DAY = Path(__file__).parents[2] / "benchmarks" / "gpu_day.py"
SECTIONS = {
    "link": ["Host to device"],
    "overlap": ["Overlap: time of a step whose batch is copied meanwhile"],
    "priorities": ["Priority of pyecho's streams: time of a step beside a pool on the device"],
    "emission": ["Emission, 150 KB rows, batches of 8", "Emission, 3 KB rows, batches of 32"],
    "gil": [
        "Beside a thread of plain Python",
        "Releases of the GIL in next(), with a batch ready",
    ],
    "training": ["Training a ResNet-50, batches of 2"],
}


def day(program, folder, *names):
    options = ["--quick", "--output", folder, *names]
    return program(DAY, *options, device_limit=2_900_000_000)


@pytest.mark.parametrize(
    "names",
    [
        ["facts", "schedules", "memcheck", "link", "overlap", "priorities", "emission"],
        pytest.param(["gil", "training"], marks=pytest.mark.stress),
    ],
)
def test_parts_have_a_result_and_their_tables(program, tmp_path, names):
    ended = day(program, tmp_path, *names)
    assert ended.returncode == 0, ended.stdout + (tmp_path / "gpu-day.log").read_text()
    [table] = tmp_path.glob("gpu-day-*.md")
    results = json.loads(table.with_suffix(".json").read_text())
    assert list(results["parts"]) == names
    for name in results["benchmarks"]:
        sections = [row["section"] for row in results["benchmarks"][name]["rows"]]
        assert list(dict.fromkeys(sections)) == SECTIONS[name]
        assert all(f"## {section}" in table.read_text() for section in sections)
    assert set(results["benchmarks"]) == set(names) & set(SECTIONS)


def test_a_part_that_has_its_result_is_left_out_and_one_that_was_cut_begins_again(
    program, tmp_path
):
    cut = day(program, tmp_path, "facts", "schedules", "--seconds", "2")
    assert cut.returncode == 3
    assert "begins again" in cut.stdout
    assert day(program, tmp_path, "facts").returncode == 0
    again = day(program, tmp_path, "facts", "captures")
    assert again.returncode == 0
    assert "facts ..." not in again.stdout
    assert "captures ..." in again.stdout
    [table] = tmp_path.glob("gpu-day-emulated-device-0.md")
    assert "- torch: " in table.read_text()
    assert "| captures | passed |" in table.read_text()
