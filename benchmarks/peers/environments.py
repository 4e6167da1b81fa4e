"""A virtual environment for each table of requirements, made once and kept."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from common.command import ROOT

REQUIREMENTS = Path(__file__).resolve().parent / "requirements"
CONSTRAINTS = ROOT / "constraints.txt"
STAMP = "made-from"


class EnvironmentFailed(Exception):
    """An environment could not be made; the message says why."""


class Environments:
    """Makes environments in a folder.

    Contestants with the same packages share one. Package indexes are part of pip's own
    configuration (`PIP_EXTRA_INDEX_URL` for a PyTorch without CUDA).
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._failed: dict[str, str] = {}

    def python(self, requirements: str) -> Path:
        """Return the interpreter of the environment; for "", the running interpreter.

        Raises
        ------
        EnvironmentFailed
            If it cannot be made, with pip's reason. Raised again at each later request.
        """
        if not requirements:
            return Path(sys.executable)
        if requirements in self._failed:
            raise EnvironmentFailed(self._failed[requirements])
        try:
            return self._made(requirements)
        except EnvironmentFailed as error:
            self._failed[requirements] = str(error)
            raise

    def log(self, name: str) -> Path:
        """Return where a contestant's stderr goes."""
        return self._folder / f"{name}.log"

    def _made(self, requirements: str) -> Path:
        folder = self._folder / Path(requirements).stem
        python = folder / "bin" / "python"
        stamp, wanted = folder / STAMP, fingerprint(requirements)
        if python.exists() and stamp.exists() and stamp.read_text() == wanted:
            return python
        print(f"installing into {folder}, minutes ...", end=" ", file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        packages: list[str | Path] = [
            "--constraint",
            CONSTRAINTS,
            "--requirement",
            REQUIREMENTS / requirements,
        ]
        commands: list[list[str | Path]] = [
            [sys.executable, "-m", "venv", folder],
            [python, "-m", "pip", "install", "--quiet", *packages],
        ]
        for command in commands:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                check=False,
                env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
            )
            if done.returncode:
                shutil.rmtree(folder, ignore_errors=True)
                raise EnvironmentFailed(reason(done.stderr or done.stdout))
        stamp.write_text(wanted)
        return python


def fingerprint(requirements: str) -> str:
    """Return a value that changes whenever the environment would differ."""
    tables = (REQUIREMENTS / requirements, CONSTRAINTS)
    text = "\n".join([sys.version, *(table.read_text() for table in tables)])
    return hashlib.sha256(text.encode()).hexdigest()


def reason(output: str) -> str:
    """Return the line of the output with the reason why pip failed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    chosen = errors[-1] if errors else lines[-1] if lines else "no reason given"
    return chosen.removeprefix("ERROR:").strip()
