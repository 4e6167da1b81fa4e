"""Finds the measured commit."""

from __future__ import annotations

import subprocess
from pathlib import Path


def commit_of(checkout: Path) -> str | None:
    """Return the output of ``git describe --always --dirty``, or None outside a checkout.

    A changed file in benchmarks/results does not count as dirty, because benchmarks write there.

    Parameters
    ----------
    checkout
        The top folder of a checkout of pyecho. For other folders the result is None, because they
        may lie in a repository of another project.
    """
    if not (checkout / ".git").exists() or not (checkout / "csrc" / "core").is_dir():
        return None
    name = _git(checkout, "describe", "--always")
    changes = _git(
        checkout, "status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results"
    )
    if not name or changes is None:
        return None
    return f"{name}-dirty" if changes else name


def _git(checkout: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(checkout), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
