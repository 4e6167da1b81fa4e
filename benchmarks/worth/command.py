"""Experiments on the worth of repeats:

    learners       does `pyecho.Worth` tell the truth?
    plateaus       does it, where the learning curve has plateaus?
    caching        cache or echo? A map over the size of the data and the number of epochs
    scarce         cache or echo, on 1,024 images over a slow line
    video          how many samples may a masked autoencoder take from a decoded video?
    refurbished    the expensive part of an augmentation once an item, the cheap part each use
    weight_decay   repeats of text want stronger weight decay
    neighbours     what workers take from the training beside them

`python benchmarks/worth.py EXPERIMENT --help` has its options. Runs are kept in the folder that
--output names as they end, so an interrupted experiment goes on.
"""

from __future__ import annotations

import importlib
import sys

from common.command import printing_parser

EXPERIMENTS = (
    "learners",
    "plateaus",
    "caching",
    "scarce",
    "video",
    "refurbished",
    "weight_decay",
    "neighbours",
)


def main(arguments: list[str] | None = None) -> None:
    """Start an experiment."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = printing_parser("worth.py", __doc__)
    parser.add_argument("experiment", choices=EXPERIMENTS, metavar="EXPERIMENT")
    experiment = parser.parse_args(arguments[:1]).experiment
    importlib.import_module(f"worth.{experiment}").main(arguments[1:])
