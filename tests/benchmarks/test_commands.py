"""The commands of benchmarks/ in their short forms."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


pytestmark = pytest.mark.slow


def run(*command, folder, status=(0,)):
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=folder,  # where there is no folder pyecho
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST")},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode in status, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("command", "needed"),
    [
        ("ops", "numpy"),
        ("ops_training", "sklearn"),
        ("ranks --epochs 2", "torch"),
        ("ray_shuffle", "ray"),
        ("free_threads --bytes 64", "numpy"),
        ("advice --only consumer-bound --steps 5", "numpy"),
        ("peers --only pyecho --work batch,256B --seconds 0.01 --environments {folder}", "numpy"),
    ],
)
def test_command_compares_round_by_round_and_writes_both_files(command, needed, tmp_path):
    pytest.importorskip(needed)
    name, *options = command.format(folder=tmp_path / "environments").split()
    # With so little work a prediction may be wrong, which advice.py tells by its status.
    status = (0, 1) if name == "advice" else (0,)
    script = [BENCHMARKS / f"{name}.py", "--quick", "--output", tmp_path, *options]
    printed = run(*script, folder=tmp_path, status=status)
    (file,) = tmp_path.glob("*-partial.json")
    rows = json.loads(file.read_text())["rows"]
    assert file.with_suffix(".md").read_text().strip() == printed.strip()
    ratios = [row["ratio"] for row in rows if row["ratio"] is not None]
    assert all(ratio["median"] > 0 and len(ratio["values"]) >= 2 for ratio in ratios)
    assert any(row["limit"] is not None for row in rows)


def test_pytest_benchmark_saves_and_compares(tmp_path):
    pytest.importorskip("pytest_benchmark")
    command = ["-m", "pytest", BENCHMARKS, "--benchmark-only", "-p", "no:cacheprovider"]
    command += ["--benchmark-max-time=0.001", "--benchmark-min-rounds=1", "-k", "Repeats or Put"]
    for option in ("--benchmark-compare", "--benchmark-autosave", "--benchmark-compare"):
        printed = run(*command, option, folder=tmp_path)
    assert "test_bare_generator (0001" in printed
    (saved,) = tmp_path.glob(".benchmarks/*/0001_*.json")
    groups = {}
    for each in json.loads(saved.read_text())["benchmarks"]:
        groups.setdefault(each["group"], []).append(each["name"])
    assert len(groups) == 4
    assert all(any("bare" in name for name in names) for names in groups.values())
    assert all(len(names) > 1 for names in groups.values())


def test_an_experiment_makes_only_the_runs_that_its_folder_lacks(tmp_path):
    pytest.importorskip("av")
    command = [BENCHMARKS / "worth.py", "video", "--quick", "--output", tmp_path]
    run(*command, folder=tmp_path)
    (file,) = tmp_path.glob("*-partial.json")
    assert "| 4 together |" in file.with_suffix(".md").read_text()
    first = json.loads(file.read_text())["runs"]
    assert first["4 together"][0]["decodings"] < first["1"][0]["decodings"]
    (kept,) = tmp_path.glob("runs/*.jsonl")
    lines = kept.read_text().splitlines()
    [lost] = [line for line in lines if json.loads(line)["key"].find('"4",') > 0]
    lines.remove(lost)
    kept.write_text("\n".join(lines) + "\n" + lost[: len(lost) // 2])  # as an interrupt leaves it
    run(*command, folder=tmp_path)
    again = json.loads(file.read_text())["runs"]
    lost, found = first.pop("4")[0], again.pop("4")[0]
    assert again == first  # their seconds as well, so that they did not run again
    assert (found["error"], found["right"]) == (lost["error"], lost["right"])
