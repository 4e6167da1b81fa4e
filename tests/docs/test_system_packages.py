"""make installs nothing for the whole system unless it is asked to."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "install_header.sh"


@pytest.mark.parametrize("value", [None, "no", "yes"])
def test_system_packages_are_installed_only_if_a_variable_says_so(value, tmp_path):
    for name in ("apt-get", "sudo"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "{name} $*" >>"{tmp_path}/calls"\n')
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment.pop("SYSTEM_PACKAGES", None)
    environment |= {} if value is None else {"SYSTEM_PACKAGES": value}
    environment.pop("CMAKE_PREFIX_PATH", None)
    command = ["sh", str(SCRIPT), "no/such/header.h", "libnone-dev"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert (tmp_path / "calls").exists() == (value == "yes")
    assert "libnone-dev" in run.stdout
    assert ("SYSTEM_PACKAGES=yes" in run.stdout) == (value != "yes")
