"""Measures pyecho on a GPU, everything beside its limit in the same run: a part of `gpu_day.py`.

Needs pyecho, a PyTorch with CUDA, and a GPU. Exits with 2 where there is none.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import torch
from common import finish, new_parser, new_report
from gpu import emission, link, setup, training

import pyecho
from pyecho.bench.report import slug

MEASUREMENTS: dict[str, Callable[..., None]] = {
    "link": link.measure,
    "overlap": link.measure_overlap,
    "priorities": link.measure_priorities,
    "emission": emission.measure,
    "training": training.measure,
}
MISSING = 2


def parsed_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = new_parser(__doc__)
    parser.add_argument("name", choices=MEASUREMENTS)
    return parser.parse_args(arguments)


def missing() -> str:
    """Return why nothing can be measured, or ""."""
    why = pyecho.cuda.why_not()
    if not torch.cuda.is_available():
        return f"PyTorch {torch.__version__} sees no CUDA device ({why or 'its build has no CUDA'})"
    return "" if pyecho.cuda.is_available() else f"pyecho cannot use CUDA: {why}"


def main(options: argparse.Namespace) -> int:
    """Measure and report."""
    if reason := missing():
        print(f"Nothing can be measured here: {reason}", file=sys.stderr)
        return MISSING
    device = torch.device("cuda", torch.cuda.current_device())
    scale = setup.QUICK if options.quick else setup.FULL
    busy = torch.empty(1 << 28, dtype=torch.uint8, pin_memory=True)
    busy.to(device, non_blocking=True)  # an idle link is slower
    del busy
    name = torch.cuda.get_device_name(device)
    report = new_report("gpu", "pyecho", options, device=name, rounds=scale.rounds)
    report.title = f"{options.name} on {name}"
    report.stem = f"gpu-{options.name}-{slug(name)}"
    MEASUREMENTS[options.name](device, report, scale)
    finish(report, options)
    return 0


if __name__ == "__main__":
    sys.exit(main(parsed_arguments()))
