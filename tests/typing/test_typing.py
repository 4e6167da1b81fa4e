"""The package is typed: programs check under mypy --strict; the stub agrees with the extension."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy")

PROGRAMS = Path(__file__).parent / "programs"


def test_programs_check_under_strict_mypy_and_mistakes_are_found_where_they_are(tmp_path):
    """In one run, for most of its time is reading NumPy and torch, from outside pyecho's source."""
    pytest.importorskip("torch")
    programs = sorted(PROGRAMS.glob("*.py"))
    settings = ["--strict", "--no-error-summary", "--hide-error-context", "--cache-dir=/dev/null"]
    result = subprocess.run(
        [sys.executable, "-I", "-m", "mypy", *settings, "--follow-imports=silent", *programs],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    found = {
        (Path(line.split(":")[0]).name, int(line.split(":")[1]))
        for line in result.stdout.splitlines()
        if ": note:" not in line
    }
    expected = {
        (path.name, number)
        for path in programs
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if line.endswith("# wrong")
    }
    assert expected
    assert (found, result.stderr) == (expected, ""), result.stdout


def test_package_says_that_it_is_typed():
    import pyecho

    assert (Path(pyecho.__file__).parent / "py.typed").exists()
    assert (Path(pyecho.__file__).parent / "_core.pyi").exists()
