"""The scripts of benchmarks/ in their short forms: a step of .ci/run if these have changed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = {  # what they need, and with which options they are short
    "clips": ("av", ""),
    "free_threads": ("numpy", ""),
    "jpegs": ("PIL", ""),
    "learners": ("torch", ""),
    "ops": ("numpy", ""),
    "ops_training": ("sklearn", ""),
    "paper": ("torch", "--only 5"),
    "peers": ("numpy", "--only pyecho --work batch,256B"),
    "refurbished": ("sklearn", ""),
    "remedies": ("torch", "--steps 5"),
    "robots": ("lerobot", ""),
    "scaling": ("numpy", ""),
    "scarce": ("sklearn", ""),
    "weight_decay": ("torch", ""),
    "workers": ("torch", ""),
}
pytestmark = pytest.mark.stress


def run(*command, folder, status=(0,)):
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=folder,  # where there is no folder pyecho
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST")},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode in status, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_prints_its_table_and_writes_it_and_json(name, tmp_path):
    needed, options = SCRIPTS[name]
    pytest.importorskip(needed)
    # With so little work advice may be wrong, which this script tells by its status.
    status = (0, 1) if name == "remedies" else (0,)
    script = [BENCHMARKS / f"{name}.py", "--quick", "--output", tmp_path, *options.split()]
    printed = run(*script, folder=tmp_path, status=status)
    (file,) = tmp_path.glob("*-partial.json")
    assert json.loads(file.read_text())["rows"]
    assert printed.startswith(file.with_suffix(".md").read_text())


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
        assert "put" not in each["name"] or each["extra_info"]["GB/s"] > 0
    assert len(groups) == 4
    assert all(any("bare" in name for name in names) for names in groups.values())
    assert all(len(names) > 1 for names in groups.values())


def test_gpu_benchmark_without_a_gpu_says_so_and_exits_with_2(tmp_path):
    if pytest.importorskip("torch").cuda.is_available():
        pytest.skip("there is a GPU")
    command = [BENCHMARKS / "gpu.py", "link", "--output", tmp_path]
    printed = run(*command, folder=tmp_path, status=(2,))
    assert printed == ""
    assert not list(tmp_path.iterdir())
