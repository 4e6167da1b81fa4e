"""The examples with other libraries, each in a process of its own."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "libraries"
SCRIPTS = {path.stem.removeprefix("with_"): path for path in sorted(FOLDER.glob("with_*.py"))}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_script(name, tmp_path):
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"needs {name}")
    command = [sys.executable, SCRIPTS[name]]
    # No model hub is asked for anything.
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    subprocess.run(command, cwd=tmp_path, env=environment, timeout=300, check=True)
