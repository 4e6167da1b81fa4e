"""Measures pyecho on a GPU, everything beside its limit in the same run.

Needs pyecho, a PyTorch with CUDA, and a GPU; takes less than 8 minutes on one. Writes a table and
JSON to gpu-<name of the device> after each measurement, to files of another name if anything is
left out. Exits with 2 where there is no GPU.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch
from common import finish, new_parser, new_report
from gpu import beside, emission, link, setup, training

import pyecho
from pyecho.bench.report import slug
from pyecho.tools.arguments import some_of

MEASUREMENTS: dict[str, Callable[..., None]] = {
    "link": link.measure,
    "overlap": link.measure_overlap,
    "emission": emission.measure,
    "beside": beside.measure,
    "training": training.measure,
}
MISSING = 2


def parsed_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = new_parser(__doc__)
    names = tuple(MEASUREMENTS)
    known = f"some of {', '.join(names)} (default: all)"
    parser.add_argument(
        "--only", type=some_of(names), default=names, metavar="NAME,...", help=known
    )
    return parser.parse_args(arguments)


def missing() -> str:
    """Return why nothing can be measured, or ""."""
    why = pyecho.cuda.why_not()
    if not torch.cuda.is_available():
        return f"PyTorch {torch.__version__} sees no CUDA device ({why or 'its build has no CUDA'})"
    return "" if pyecho.cuda.is_available() else f"pyecho cannot use CUDA: {why}"


def asked(device: torch.device, names: str) -> str:
    """Return what nvidia-smi says of a device; "unknown" where it is missing or fails."""
    command = [f"--id=GPU-{torch.cuda.get_device_properties(device).uuid}", f"--query-gpu={names}"]
    if shutil.which("nvidia-smi") is None:
        return "unknown"
    command = ["nvidia-smi", *command, "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    return "unknown" if done.returncode else done.stdout.strip()


def main(options: argparse.Namespace) -> int:
    """Measure and report."""
    if reason := missing():
        print(f"Nothing can be measured here: {reason}", file=sys.stderr)
        return MISSING
    device = torch.device("cuda", torch.cuda.current_device())
    scale = setup.QUICK if options.quick else setup.FULL
    busy = torch.empty(1 << 28, dtype=torch.uint8, pin_memory=True)
    busy.to(device, non_blocking=True)  # an idle link is slower
    name = torch.cuda.get_device_name(device)
    facts: dict[str, Any] = {"device": name, "rounds": scale.rounds}
    facts["PCIe"] = asked(device, "pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current")
    del busy
    report = new_report("gpu", "pyecho", options, **facts)
    report.title, report.stem = f"pyecho on {name}", f"gpu-{slug(name)}"
    report.partial |= options.only != tuple(MEASUREMENTS)
    failed = False
    for each in options.only:
        try:
            MEASUREMENTS[each](device, report, scale)
        except Exception as error:  # the other measurements continue
            failed = True
            traceback.print_exc()
            report.note(f"{each}: failed with {type(error).__name__}: {error}")
        clocks = asked(device, "clocks.sm,clocks.mem,temperature.gpu")
        report.note(f"{each}: clocks and temperature afterwards {clocks}")
        torch.cuda.empty_cache()
        report.write(options.output)
    finish(report, options)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(parsed_arguments()))
