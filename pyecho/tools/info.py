"""The report of ``pyecho info``: the build, and the machine as it sees it."""

from __future__ import annotations

import argparse
import platform
import re
import resource
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from pyecho import _core, cuda
from pyecho.tools.arguments import add_output, columns, show

SUMMARY = "show the build, and what this machine offers to it"
DESCRIPTION = f"{SUMMARY.capitalize()}."
EPILOG = ""

_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage")
_CPU_LIST = Path("/proc/cpuinfo")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    facts = collect() | collect_cuda()
    show(arguments, facts, as_text(facts))
    return 0


def collect() -> dict[str, Any]:
    """Gather the facts, as plain JSON types; None where the system does not tell."""
    build = _core.build_info()
    torch = next(iter(metadata.distributions(name="torch")), None)  # not imported: that is slow
    memlock, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)  # how much memory may be pinned
    return {
        "pyecho": build["version"],
        "build_type": build["build_type"],
        "compiler": build["compiler"],
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "numpy": np.__version__,
        "torch": torch and torch.version,
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": found_in(_CPU_LIST, r"^model name\s*:\s*(.+)$"),
        "cores": _core.available_cores(),
        "memory_bytes": _core.memory_bytes(),
        "memory_nodes": _core.memory_nodes(),
        "huge_pages": found_in(_HUGE_PAGES / "enabled", r"\[(\w+)\]"),
        "shared_huge_pages": found_in(_HUGE_PAGES / "shmem_enabled", r"\[(\w+)\]"),
        "memlock_bytes": None if memlock == resource.RLIM_INFINITY else memlock,
    }


def collect_cuda() -> dict[str, Any]:
    """Gather the facts about CUDA; loads the driver, and PyTorch if there is a device."""
    version, missing = cuda.driver_version(), cuda.why_not()
    return {
        "cuda_driver": None if version is None else f"{version[0]}.{version[1]}",
        "cuda_missing": missing,
        "cuda_devices": cuda.device_names(),
        "cuda_copies": None if missing else _way_of_copies(),
    }


def _way_of_copies() -> dict[str, Any] | None:
    """Return what batches cross with; None without PyTorch, or with one that cannot be imported."""
    try:
        from pyecho.device import leaves, runtime
    except (ImportError, OSError):  # or a library that PyTorch lacks
        return None
    return {
        "runtimes": {library._name: lacking for library, lacking in runtime.libraries()},
        "torch_functions": leaves.functions() is not None,
        "native": runtime.runtime() is not None and leaves.functions() is not None,
    }


def as_text(facts: dict[str, Any]) -> str:
    """Arrange the facts of `collect` and `collect_cuda` in two aligned columns."""
    memlock, missing = facts["memlock_bytes"], facts["cuda_missing"]
    lines = {
        "pyecho": f"{facts['pyecho']} ({facts['build_type']} build, {facts['compiler']})",
        "Python": facts["python"],
        "NumPy": facts["numpy"],
        "torch": facts["torch"] or "not found",
        "system": facts["system"],
        "CPU": facts["cpu"] or "unknown",
        "cores": f"{facts['cores']} usable",
        "memory": f"{facts['memory_bytes'] / 2**30:,.1f} GiB usable",
        "memory nodes": str(len(facts["memory_nodes"]) or "unknown"),
        "huge pages": facts["huge_pages"] or "unknown",
        "of workers": facts["shared_huge_pages"] or "unknown",
        "memlock limit": "unlimited" if memlock is None else f"{memlock / 2**20:,.1f} MiB",
        "CUDA": f"not in use: {missing}" if missing else f"driver for CUDA {facts['cuda_driver']}",
    }
    if facts["cuda_devices"]:
        lines["devices"] = ", ".join(facts["cuda_devices"])
    if copies := facts["cuda_copies"]:
        lines["copies"] = "by native threads" if copies["native"] else "by PyTorch"
        lines["runtime"] = "; ".join(
            f"{path}, " + (f"no {', '.join(lacking)}" if lacking else "complete")
            for path, lacking in copies["runtimes"].items()
        )
        lines["runtime"] = lines["runtime"] or "none is loaded"
        lines["of PyTorch"] = "complete" if copies["torch_functions"] else "functions are missing"
    return columns(list(lines.items()), str.ljust, gap=2)


def found_in(path: Path, pattern: str) -> str | None:
    """Return the first group of a pattern in a file of the system, None if it is not there."""
    try:
        match = re.search(pattern, path.read_text(), re.MULTILINE)
    except OSError:
        return None
    return match.group(1) if match else None
