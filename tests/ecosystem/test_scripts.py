"""Scripts of the documentation whose fences name a library, each in a process of its own."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = sorted((Path(__file__).parents[2] / "docs").glob("*.md"))
FENCE = re.compile(r"^```python no-run (\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SCRIPTS = dict(found for path in DOCS for found in FENCE.findall(path.read_text()))


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_script(name, tmp_path):
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"needs {name}")
    (tmp_path / "script.py").write_text(SCRIPTS[name])
    command = [sys.executable, "script.py"]
    # No model hub is asked for anything.
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    subprocess.run(command, cwd=tmp_path, env=environment, timeout=300, check=True)
