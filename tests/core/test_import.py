"""The import: names that completion shows are there; another project of this name is refused."""

import shutil
import subprocess
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

import pyecho


def test_import_is_refused_beside_the_other_project_named_pyecho(tmp_path):
    folder = tmp_path / "pyecho"
    folder.mkdir()
    shutil.copy(Path(pyecho.__file__), folder)
    (folder / "echo.py").touch()  # which pip leaves there, whichever of the two came last
    done = subprocess.run(
        [sys.executable, "-c", "import pyecho"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 1
    assert "pip uninstall pyecho data-echoing" in done.stderr


def test_names_that_completion_shows_are_there_after_import_pyecho():
    program = """
import pyecho

missing = [name for name in dir(pyecho) if not hasattr(pyecho, name)]
assert not missing, missing
assert pyecho.ops.RandomFlip(0)
assert not hasattr(pyecho, "nothing")
assert "torch" not in dir(pyecho) or pyecho.torch.EchoLoader([1], 2)
"""
    subprocess.run([sys.executable, "-I", "-c", program], check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="reads ELF files")
@pytest.mark.skipif(shutil.which("readelf") is None, reason="needs binutils")
def test_library_has_canaries_and_no_writable_table_of_addresses():
    def shown(what):
        command = ["readelf", what, "--wide", pyecho._core.__file__]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "BIND_NOW" in shown("--dynamic")
    assert "GNU_RELRO" in shown("--program-headers")
    assert "__stack_chk_fail" in shown("--dyn-syms")
    assert "RWE" not in shown("--program-headers")


def test_completion_shows_no_torch_where_there_is_none(monkeypatch):
    monkeypatch.setattr(PathFinder, "find_spec", lambda name: None)
    assert not {"jax", "torch"} & set(dir(pyecho))
