"""The package is typed: programs check under mypy --strict; the stub agrees with the extension."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy")

PROGRAMS = Path(__file__).parent / "programs"


def check(arguments, folder):
    """Run a module of mypy's from a folder that holds no source of pyecho's."""
    return subprocess.run(
        [sys.executable, "-I", "-m", *arguments], cwd=folder, capture_output=True, text=True
    )


def mypy(program, folder, *more):
    settings = [
        "--strict",
        "--no-error-summary",
        "--cache-dir",
        str(folder),
        "--follow-imports=silent",
    ]
    return check(["mypy", *settings, *more, str(PROGRAMS / program)], folder)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """One cache for all runs: most of their time is reading NumPy and torch."""
    return tmp_path_factory.mktemp("mypy")


@pytest.mark.parametrize("program", ["numpy_loader.py", "buffer.py", "torch_loader.py"])
def test_programs_check_under_strict_mypy(program, cache):
    if "torch" in program:
        pytest.importorskip("torch")
    result = mypy(program, cache)
    assert (result.stdout, result.stderr, result.returncode) == ("", "", 0)


def test_mistakes_are_found_where_they_are(cache):
    result = mypy("mistakes.py", cache, "--hide-error-context")
    found = {int(line.split(":")[1]) for line in result.stdout.splitlines() if ": error:" in line}
    lines = (PROGRAMS / "mistakes.py").read_text().splitlines()
    assert found == {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}


def test_the_package_says_that_it_is_typed():
    import pyecho

    assert (Path(pyecho.__file__).parent / "py.typed").exists()
    assert (Path(pyecho.__file__).parent / "_core.pyi").exists()
