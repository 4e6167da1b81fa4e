"""Measures pyecho on a GPU, everything beside its limit in the same run.

Needs pyecho, a PyTorch with CUDA, and a GPU; takes less than 8 minutes on one. Writes a table and
JSON to gpu-<name of the device> after each measurement, with other options to files of another
name. Exits with 2 where there is no GPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from common.command import ROOT, finish, make_output, new_parser

from pyecho.tools.arguments import some_of

TESTS = ROOT / "tests"
TESTS_SECONDS = 400
MEASUREMENTS = ("link", "overlap", "emission", "bytes", "beside", "training", "tests")
MISSING = 2


def parsed_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = new_parser("gpu.py", __doc__)
    scales = parser.add_mutually_exclusive_group()
    scales.add_argument(
        "--quick", action="store_true", help="fewer rounds and less of each: about a minute"
    )
    scales.add_argument(
        "--tiny", action="store_true", help="next to nothing, to see whether everything runs"
    )
    parser.add_argument(
        "--only",
        type=some_of(MEASUREMENTS),
        default=MEASUREMENTS,
        metavar="NAME,...",
        help=f"some of {', '.join(MEASUREMENTS)} (default: all of them)",
    )
    parser.add_argument("--device", default="cuda", help="default: %(default)s")
    return parser.parse_args(arguments)


def missing() -> str:
    """Return the first missing requirement, or ""."""
    if importlib.util.find_spec("torch") is None:
        return "PyTorch is not installed: pip install torch"
    import torch

    import pyecho

    if not torch.cuda.is_available():
        why = pyecho.cuda.why_not() or "this build of PyTorch cannot use the GPU"
        return f"PyTorch {torch.__version__} sees no CUDA device ({why})"
    if not pyecho.cuda.is_available():
        return f"pyecho cannot use CUDA: {pyecho.cuda.why_not()}"
    return ""


def run_tests(device: Any, report: Any, scale: Any) -> None:
    """Run tests/gpu in a process of its own, and note the result."""
    if importlib.util.find_spec("pytest") is None or not TESTS.is_dir():
        report.note("tests: not run, because pytest or the folder tests is missing")
    else:
        command = [sys.executable, "-P"] if sys.version_info >= (3, 11) else [sys.executable]
        command += ["-m", "pytest", "-q", "-p", "no:cacheprovider"]
        on_any_device = ("augment", "same_output", "sources")
        command.append(str(TESTS / "gpu"))
        command += [str(TESTS / "device" / f"test_{name}.py") for name in on_any_device]
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


def main(arguments: list[str] | None = None) -> int:
    """Measure and report."""
    options = parsed_arguments(arguments)
    if reason := missing():
        print(f"Nothing can be measured here: {reason}", file=sys.stderr)
        return MISSING
    import torch

    import pyecho
    from gpu import beside, emission, link, machine, training, workload
    from pyecho.bench.report import Report, facts_of, slug

    device = torch.device(options.device)
    if device.index is None:
        device = torch.device(device.type, torch.cuda.current_device())
    torch.cuda.set_device(device)
    make_output(options)
    measurements: dict[str, Callable[..., None]] = {
        "link": link.measure,
        "overlap": link.measure_overlap,
        "emission": emission.measure,
        "bytes": emission.measure_bytes,
        "beside": beside.measure,
        "training": training.measure,
        "tests": run_tests,
    }
    scale = workload.FULL
    if options.quick or options.tiny:
        scale = workload.QUICK if options.quick else workload.TINY
    version = pyecho.cuda.driver_version()
    described = facts_of(
        device=torch.cuda.get_device_name(device),
        driver="unknown" if version is None else f"for CUDA {version[0]}.{version[1]}",
        rounds=scale.rounds,
        **machine.facts(device),
    )
    report = Report(
        f"pyecho on {described['device']}",
        f"gpu-{slug(described['device'])}",
        described,
        partial=scale is not workload.FULL or options.only != MEASUREMENTS,
    )
    began = time.monotonic()
    failed = False
    for name in options.only:
        torch.cuda.reset_peak_memory_stats(device)
        try:
            measurements[name](device, report, scale)
        except Exception as error:  # the other measurements continue
            failed = True
            traceback.print_exc()
            report.note(f"{name}: failed with {type(error).__name__}: {error}")
        report.note(f"{name}: {machine.state(device)}")
        torch.cuda.empty_cache()
        report.facts["seconds"] = round(time.monotonic() - began)
        report.write(options.output)
    finish(report, options)
    return 1 if failed else 0
