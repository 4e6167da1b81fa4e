"""The index ring against atomic_queue, moodycamel and boost::lockfree.

Runs ring_benchmark (see benchmarks/cpp), in which they take turns. Numbers are those of an item.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from common.command import ROOT, add_rounds, finish, new_parser, new_report

from pyecho.bench.row import Row
from pyecho.bench.sampling import Sample

PROGRAM = ROOT / "build" / "release" / "benchmarks" / "cpp" / "ring_benchmark"


def rows_of(shape: dict[str, Any], items: int) -> list[Row]:
    """Return the rows of a number of producers and consumers."""
    ns = {
        name: Sample(tuple(seconds)).times(1e9 / items)
        for name, seconds in shape["seconds"].items()
    }
    ours, grouped = ns.pop("pyecho"), ns.pop("pyecho, groups of 32")
    shown = f"{shape['producers']} to {shape['consumers']}"
    best = min(ns, key=lambda name: ns[name].median, default=None)
    rows = [Row(f"{shown}: groups of 32", grouped, "ns", ours, "pyecho", ours / grouped)]
    for name, theirs in ns.items():
        target = ">= 1.0" if name == best else ""
        rows.append(Row(f"{shown}: pyecho", ours, "ns", theirs, name, theirs / ours, target))
    return rows


def main() -> None:
    """Run the program and report."""
    parser = new_parser("rings.py", __doc__)
    add_rounds(parser, 9)
    parser.add_argument("--program", type=Path, default=PROGRAM, help="default: %(default)s")
    options = parser.parse_args()
    report = new_report("rings", "Index rings", options)
    command = [str(options.program), str(options.rounds)]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    document = json.loads(output)
    for shape in document["shapes"]:
        report.add("Rings, per item", rows_of(shape, document["items"]))
    report.note("ratios are speeds: above 1, the one in the first column is faster")
    finish(report, options)


if __name__ == "__main__":
    main()
