"""The import beside another project of the same name."""

import shutil
import subprocess
import sys
from pathlib import Path

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
