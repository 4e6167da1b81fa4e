"""The experiments of "Faster Neural Network Training with Data Echoing" (arXiv:1907.05550), with
pyecho, on real data and at a scale that two CPU cores can train: a small residual net on
Fashion-MNIST and a small Transformer on the sources of Python's standard library.

Every condition is trained to the same held-out target, with a learning rate of its own that was
chosen with a separate seed. Finished runs are kept in --cache, so an interrupted command continues:
Ctrl-C loses only the runs in progress. Fig. 4 is timed, so leave the machine idle meanwhile.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from common.command import INTERRUPTED, ROOT, exit_when_terminated, make_output, new_parser

from pyecho.tools.arguments import positive_int, some_of

FIGURE_NAMES = ("3", "4", "5", "6", "7", "drift", "quality")
PACKAGES = {"torch": "torch", "PIL": "pillow", "matplotlib": "matplotlib"}
SHORT_SEEDS, FULL_SEEDS = 3, 5


def parsed_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = new_parser("paper.py", __doc__)
    add = parser.add_argument
    add("--full", action="store_true", help="all conditions and more seeds: hours, not minutes")
    add(
        "--only",
        type=some_of(FIGURE_NAMES),
        metavar="FIG,...",
        help=f"figures among {', '.join(FIGURE_NAMES)} (default: 3,4,5; with --full all)",
    )
    add(
        "--seeds",
        type=positive_int,
        metavar="N",
        help=f"runs of every condition (default: {SHORT_SEEDS}; with --full {FULL_SEEDS})",
    )
    add(
        "--jobs",
        type=positive_int,
        metavar="N",
        help="runs at a time, a core each, where nothing is timed (default: one for each core)",
    )
    add(
        "--cache",
        type=Path,
        default=ROOT / "build" / "paper",
        metavar="DIR",
        help="finished runs and fetched data (default: %(default)s)",
    )
    add(
        "--fashion-mnist",
        type=Path,
        metavar="DIR",
        help="the four files of Fashion-MNIST (default: from Debian's package "
        "dataset-fashion-mnist, fetched where it is not installed)",
    )
    add(
        "--text",
        type=Path,
        metavar="DIR",
        help="text to train on, with one of its files in ten held out (default: the sources of "
        "Python's standard library)",
    )
    add("--nice", type=int, default=0, metavar="N", help="give way to others (default: 0)")
    add("--dry-run", action="store_true", help="list the runs and what time they take, about")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Make the runs that are not in the cache, and report."""
    options = parsed_arguments(arguments)
    missing = [name for module, name in PACKAGES.items() if find_spec(module) is None]
    if missing:
        print(f"Missing: pip install {' '.join(missing)}", file=sys.stderr)
        return 2
    from paper.data import DataError
    from pyecho.tools.arguments import CommandError

    try:
        return _run(options)
    except (DataError, CommandError) as error:
        print(f"benchmarks/paper.py: {error}", file=sys.stderr)
        return 1
    except BrokenProcessPool:
        print(
            "benchmarks/paper.py: a process that trains was killed (for want of memory, perhaps); "
            "the same command goes on from here.",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        print("Interrupted; the same command goes on from here.", file=sys.stderr)
        return INTERRUPTED


def _run(options: argparse.Namespace) -> int:
    from paper import display, running, worker
    from paper.conditions import Condition
    from paper.data import fashion_folder
    from paper.experiments import Entry, default_figures, entries
    from paper.plan import Setting, chosen_rate, planned, total_seconds
    from paper.store import Store
    from paper.text import Text
    from paper.train import Result
    from pyecho.bench.report import facts_of
    from pyecho.config import available_cores

    chosen = entries(options.only or default_figures(full=options.full), full=options.full)
    seeds = options.seeds or (FULL_SEEDS if options.full else SHORT_SEEDS)
    plan = planned(chosen, seeds)
    jobs = options.jobs or available_cores()
    if options.dry_run:
        print(listing(plan, jobs))
        return 0
    cache = options.cache
    make_output(options)
    needed = {setting.condition.workload for setting in plan.tuned}
    images = None
    if needed != {Text.name}:
        images = fashion_folder(options.fashion_mnist, cache / "data")
    places = worker.Places(images, options.text, cache / "data")
    facts = facts_of(seeds=seeds, version="full" if options.full else "short")
    data = {name: worker.load(name, places).data for name in sorted(needed)}
    store = Store(cache / "runs.jsonl", data, machine=str(facts["cpu"]))
    exit_when_terminated()
    began = time.monotonic()
    watcher = display.Display(total_seconds(plan, jobs))
    costs = running.run(plan, store, places, jobs=jobs, nice=options.nice, watcher=watcher)

    def results(of: Condition, entry: Entry) -> list[Result]:
        setting = Setting(of, entry.goal)
        rate = chosen_rate(setting, costs[setting])
        found = (store.result_of(setting.job(rate, seed, timed=entry.timed)) for seed in plan.seeds)
        return [result for result in found if result is not None]

    facts |= {
        **_targets(data),
        "minutes, without what earlier sessions did": round((time.monotonic() - began) / 60, 1),
    }
    return _report(options, facts, chosen, results, costs)


def _targets(data: dict[str, str]) -> dict[str, str]:
    from paper.experiments import WORKLOADS

    return {
        name: f"target {workload.target:g} {workload.held_out_unit}, data {data[name]}"
        for name, workload in WORKLOADS.items()
        if name in data
    }


def _report(
    options: argparse.Namespace, facts: dict[str, Any], chosen: Any, results: Any, costs: Any
) -> int:
    from paper import figures, report
    from paper.summary import findings, marks
    from pyecho.bench.report import slug

    found = marks(chosen, results, costs)
    said = findings(found)
    stem = f"paper-{slug(str(facts['cpu']))}-{facts['version']}"
    drawn = figures.draw(found, options.output, stem)
    markdown = report.as_markdown(facts, found, said, drawn)
    paths = report.write(options.output, stem, report.as_json(facts, found, said), markdown)
    print(markdown)
    print(*paths, *drawn.values(), sep="\n", file=sys.stderr)
    return 0


def listing(plan: Any, jobs: int) -> str:
    """Describe a plan without carrying it out."""
    from paper.plan import EXPECTED_TRIALS, seconds, total_seconds

    lines = []
    for setting in plan.tuned:
        trial = seconds(setting.job(0.0, 0))
        parts = [f"about {EXPECTED_TRIALS} for the learning rate, {trial:.0f} s each"]
        if setting in plan.untimed:
            parts.append(f"{len(plan.seeds)} seeds, {trial:.0f} s each")
        if setting in plan.timed:
            slow = seconds(setting.job(0.0, 0, timed=True))
            parts.append(f"{len(plan.seeds)} seeds over the network, {slow:.0f} s each")
        kind = "" if setting.goal.target is not None else ", quality"
        lines.append(f"{setting.condition}{kind}: {'; '.join(parts)}")
    minutes = total_seconds(plan, jobs) / 60
    lines.append(f"{len(plan.tuned)} conditions, about {minutes:.0f} minutes, {jobs} at a time")
    return "\n".join(lines)
