"""Shared by the scripts of this folder: options, results, and runs that are kept."""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import multiprocessing
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pyecho.bench.report import Report, facts_of, slug
from pyecho.bench.sampling import Sample
from pyecho.tools.arguments import CommandError, check_folder, positive_int

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "build" / "bench"
Job = tuple[Any, ...]


def new_parser(text: str | None, **counts: int) -> argparse.ArgumentParser:
    """Return a parser with --output, --quick and, such as ``seeds=3``, counts by default."""
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--output", type=Path, default=OUTPUT, help="where results go (default: %(default)s)")
    add("--quick", action="store_true", help="next to nothing: shows that everything works")
    for name, count in counts.items():
        add(f"--{name}", type=positive_int, default=count, metavar="N", help="default: %(default)s")
    return parser


def new_report(name: str, title: str, options: argparse.Namespace, **facts: Any) -> Report:
    """Return a report for these options, with two rounds and one seed if they say --quick."""
    try:
        check_folder("--output", options.output)
    except CommandError as error:
        raise SystemExit(str(error)) from None
    given = vars(options)
    for count, few in (("rounds", 2), ("seeds", 1)):
        if count in given:
            given[count] = min(given[count], few) if options.quick else given[count]
            facts[count] = given[count]
    described = facts_of(**facts)
    machine = described["cpu"] or described["system"]
    return Report(
        f"{title} on {machine}", f"{name}-{slug(machine)}", described, partial=options.quick
    )


def finish(report: Report, options: argparse.Namespace, **more: Any) -> None:
    """Print the table, and write it and JSON, which also holds `more`."""
    print(report.as_markdown())
    print(*report.write(options.output, **more), sep="\n")


def sample(values: Iterable[float]) -> Sample:
    """Return the values of rounds or seeds."""
    return Sample(tuple(map(float, values)))


def results_of(
    run: Callable[..., Any], jobs: Iterable[Job], output: Path, *, processes: int = 1
) -> dict[Job, Any]:
    """Return `run(*job)` of each job, in plain types.

    Results are kept in ``output/runs`` as they come, so an interrupted command goes on. Once the
    file of `run` has changed, all are made again.
    """
    source = Path(inspect.getfile(run))
    version = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    kept = output / "runs" / f"{source.stem}-{run.__name__}-{version}.jsonl"
    kept.parent.mkdir(parents=True, exist_ok=True)
    lines = kept.read_text().splitlines(keepends=True) if kept.exists() else []
    found = dict(json.loads(line) for line in lines if line.endswith("\n"))  # else torn
    wanted = {job: json.dumps(job) for job in jobs}
    missing = [(run, job, key) for job, key in wanted.items() if key not in found]
    kept.write_text("".join(line for line in lines if line.endswith("\n")))
    with kept.open("a") as file, multiprocessing.get_context("spawn").Pool(processes) as pool:
        made = pool.imap_unordered(_keyed, missing)
        for key, result in shown(made, f"{run.__name__} of {source.stem}", len(missing)):
            file.write(json.dumps([key, result]) + "\n")
            file.flush()
            found[key] = result
    return {job: found[key] for job, key in wanted.items()}


def _keyed(what: tuple[Callable[..., Any], Job, str]) -> tuple[str, Any]:
    run, job, key = what
    return key, run(*job)


def shown(items: Iterable[Any], what: str, total: int | None = None) -> Iterable[Any]:
    """Return the items, and show on stderr how many have been taken."""
    from rich.console import Console
    from rich.progress import track

    return track(items, what, total=total, console=Console(stderr=True))


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure of matplotlib, the same bytes each time."""
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "pyecho"}):
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else {})
    print(path)
