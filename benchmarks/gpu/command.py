"""Measures pyecho on a GPU, everything beside its limit in the same run.

Needs pyecho, a PyTorch with CUDA, and a GPU; takes less than 8 minutes on one. Writes a table, the
numbers and (with matplotlib) a figure to benchmarks/results/gpu-<name of the device>.md, .json and
.svg; with other options to files of another name. Exits with 2 where there is no GPU.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
TESTS = HERE.parent / "tests"
TESTS_SECONDS = 400
MEASUREMENTS = ("tests", "link", "overlap", "emission", "bytes", "training")
MISSING = 2


def parsed_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="benchmarks/gpu.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    scales = parser.add_mutually_exclusive_group()
    scales.add_argument(
        "--quick", action="store_true", help="fewer rounds and less of each: about a minute"
    )
    scales.add_argument(
        "--tiny", action="store_true", help="next to nothing, to see whether everything runs"
    )
    parser.add_argument(
        "--only",
        type=chosen,
        default=MEASUREMENTS,
        metavar="NAME,...",
        help=f"some of {', '.join(MEASUREMENTS)} (default: all of them)",
    )
    parser.add_argument(
        "--output", type=Path, default=HERE / "results", metavar="DIR", help="default: %(default)s"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--device", default="cuda", help="default: %(default)s")
    return parser.parse_args(arguments)


def chosen(names: str) -> tuple[str, ...]:
    """Return the measurements that are named, in the order in which they are made."""
    wanted = {name.strip() for name in names.split(",") if name.strip()}
    if not wanted or wanted - set(MEASUREMENTS):
        raise argparse.ArgumentTypeError(f"names are {', '.join(MEASUREMENTS)}, got {names!r}")
    return tuple(name for name in MEASUREMENTS if name in wanted)


def missing() -> str:
    """Return the first missing requirement, or ""."""
    if importlib.util.find_spec("torch") is None:
        return "PyTorch is not installed: pip install torch"
    import torch

    try:
        import pyecho
    except ImportError as error:
        return str(error) if "native part" in str(error) else "pyecho is not installed"
    if not torch.cuda.is_available():
        why = pyecho.cuda.why_not() or "this build of PyTorch cannot use the GPU"
        return f"PyTorch {torch.__version__} sees no CUDA device ({why})"
    if not pyecho.cuda.is_available():
        return f"pyecho cannot use CUDA: {pyecho.cuda.why_not()}"
    return ""


def facts(device: Any) -> dict[str, Any]:
    """Describe the machine and the software."""
    import torch

    import pyecho
    from pyecho.bench.commit import commit_of
    from pyecho.tools import info

    build = info.collect()
    version = pyecho.cuda.driver_version()
    return {
        "device": torch.cuda.get_device_name(device),
        "date": datetime.date.today().isoformat(),
        "commit": commit_of(HERE.parent),
        "pyecho": f"{build['pyecho']} ({build['build_type']}, {build['compiler']})",
        "torch": torch.__version__,
        "driver": "unknown" if version is None else f"for CUDA {version[0]}.{version[1]}",
        "python": platform.python_version(),
        "cpu": build["cpu"],
        "cores": build["cores"],
        "huge pages": build["huge_pages"],
    }


def run_tests(report: Any, progress: Any) -> None:
    """Run tests/gpu in a process of its own, and note the result."""
    progress.begin("tests/gpu", 1)
    if importlib.util.find_spec("pytest") is None or not TESTS.is_dir():
        report.note("tests: not run, because pytest or the folder tests is missing")
    else:
        command = [sys.executable, "-P"] if sys.version_info >= (3, 11) else [sys.executable]
        command += ["-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += [str(TESTS / "gpu"), str(TESTS / "device" / "test_same_output.py")]
        try:
            result = subprocess.run(
                command, capture_output=True, text=True, timeout=TESTS_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            report.note(f"tests: not done after {TESTS_SECONDS} s")
        else:
            lines = [line for line in result.stdout.splitlines() if line.strip()]
            failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
            report.note(f"tests: {lines[-1].strip('= ') if lines else result.stderr[-300:]}")
            for line in failed:
                report.note(f"tests: {line}")
    progress.advance("done")


def main(arguments: list[str] | None = None) -> int:
    """Measure and report."""
    options = parsed_arguments(arguments)
    if reason := missing():
        print(f"Nothing can be measured here: {reason}", file=sys.stderr)
        return MISSING
    import torch
    from common.report import Report, slug

    from gpu import emission, link, training, workload
    from pyecho.bench.sampling import shown

    device = torch.device(options.device)
    if device.index is None:
        device = torch.device(device.type, torch.cuda.current_device())
    torch.cuda.set_device(device)
    measurements: dict[str, Callable[..., None]] = {
        "link": link.measure,
        "overlap": link.measure_overlap,
        "emission": emission.measure,
        "bytes": emission.measure_bytes,
        "training": training.measure,
    }
    scale = workload.FULL
    if options.quick or options.tiny:
        scale = workload.QUICK if options.quick else workload.TINY
    described = facts(device) | {"rounds": scale.rounds}
    report = Report(
        f"pyecho on {described['device']}",
        f"gpu-{slug(described['device'])}",
        described,
        partial=scale is not workload.FULL or options.only != MEASUREMENTS,
    )
    began = time.monotonic()
    failed = False
    with shown() as progress:
        for name in options.only:
            if name == "tests":
                run_tests(report, progress)
                continue
            try:
                measurements[name](device, report, progress, scale)
            except Exception as error:  # the other measurements continue
                failed = True
                traceback.print_exc()
                report.note(f"{name}: failed with {type(error).__name__}: {error}")
            torch.cuda.empty_cache()
    report.facts["seconds"] = round(time.monotonic() - began)
    paths = report.write(options.output)
    if importlib.util.find_spec("matplotlib") is not None:
        from common.figure import write_figure

        figure = options.output / f"{report.name}.svg"
        if write_figure(report, figure):
            paths.append(figure)
    print(json.dumps(report.as_json(), indent=1) if options.json else report.as_markdown())
    for path in paths:
        print(path, file=sys.stderr)
    return 1 if failed else 0
