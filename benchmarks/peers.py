"""Measures pyecho beside the tools a user would pick instead, in turns in one run.

All do the same work: read fresh examples from memory in order, use each 4 times, shuffled among a
pool, and emit batches of 256 into which every row has been copied. Each tool has a virtual
environment of its own in build/peers, made at the first run (gigabytes, several minutes), and a
process of its own, which is idle while the others are measured. Exits with 1 if a contestant could
not take part.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import math
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from common import ROOT, finish, new_parser, new_report
from peers.work import Work

from pyecho._core import available_cores
from pyecho.bench.report import Report
from pyecho.bench.row import Row
from pyecho.bench.sampling import Sample, interleaved
from pyecho.tools.arguments import some_of

FOLDER = ROOT / "build" / "peers"
ANSWER_SECONDS = 300.0
NUMPY, TORCH = "numpy==2.4.6", "torch==2.13.0"
PYECHO, LIMITS = "pyecho", {"examples": "memcpy", "batches": "generator"}


class Contestant(NamedTuple):
    """One way to do the work."""

    title: str
    packages: tuple[str, ...]
    """Of its environment; none for that of the runner."""
    examples: str = ""
    """The function for example echoing, in a module of peers; "" if it has none."""
    batches: str = ""
    threads: bool = False
    """Its number of threads is an option, and more are not always faster: try one, too."""
    exact: bool = True
    """It promises that every example is used exactly as often as the factor says."""


CONTESTANTS = {
    PYECHO: Contestant("pyecho", (), "copies.pyecho_examples", "copies.pyecho_batches"),
    "pyecho-singly": Contestant("pyecho, source of single examples", (), "copies.pyecho_singly"),
    "memcpy": Contestant("NumPy copies in blocks, all cores", (), "copies.memcpy", exact=False),
    "generator": Contestant("bare Python generator", (), "", "copies.generator"),
    "numpy-take": Contestant("NumPy, blocks + take", (NUMPY,), "copies.numpy_take"),
    "torch-select": Contestant(
        "PyTorch, blocks + index_select", (TORCH, NUMPY), "copies.torch_select", threads=True
    ),
    "cpprb": Contestant(
        "cpprb, add + sample", ("cpprb==11.0.0", NUMPY), "copies.cpprb", exact=False
    ),
    "tf.data": Contestant(
        "tf.data, flat_map of chunks",
        ("tensorflow-cpu==2.21.0", NUMPY),
        "pipelines.tf_chunks",
        "pipelines.tf_batches",
        threads=True,
    ),
    "tf.data-paper": Contestant(
        "tf.data, flat_map of examples",
        ("tensorflow-cpu==2.21.0", NUMPY),
        "pipelines.tf_examples",
        threads=True,
    ),
    "grain": Contestant(
        "Grain", ("grain==0.2.18", NUMPY), "pipelines.grain_examples", "pipelines.grain_batches"
    ),
    "torchdata.nodes": Contestant(
        "torchdata.nodes",
        ("torchdata==0.11.0", TORCH, NUMPY),
        "",
        "pipelines.nodes_batches",
    ),
    "dataloader": Contestant(
        "torch DataLoader, a worker per core; batches: none",
        (TORCH, NUMPY),
        "pipelines.dataloader_examples",
        "pipelines.dataloader_batches",
    ),
    "monai": Contestant(
        "MONAI ThreadDataLoader", ("monai==1.6.1", TORCH, NUMPY), "", "pipelines.monai_batches"
    ),
    "spdl": Contestant(
        "SPDL",
        ("spdl-core==0.8.0", NUMPY),
        "pipelines.spdl_examples",
        threads=True,
    ),
}
WORKS = {  # title, kind, shape, least pool, pools in the source, target of pyecho's speed
    "batch": ("Batch echoing, by reference", "batches", (32, 32, 3), 4096, 1, ""),
    "256B": ("Example echoing, 256 B rows", "examples", (256,), 4096, 4, ""),
    "3KB": ("Example echoing, 3 KB rows", "examples", (32, 32, 3), 4096, 4, ">= 4"),
    "150KB": ("Example echoing, 150 KB rows", "examples", (224, 224, 3), 1024, 2, ">= 1.5"),
}


class Failed(Exception):
    """A contestant could not be installed or started, has ended, or was too slow."""


def python_of(packages: tuple[str, ...]) -> Path:
    """Return the interpreter of an environment with these packages, which is made once and kept."""
    if not packages:
        return Path(sys.executable)
    folder = FOLDER / packages[0]
    python, wanted = folder / "bin" / "python", "\n".join((sys.version, *packages))
    with contextlib.suppress(OSError):
        if (folder / "made-from").read_text() == wanted:
            return python
    print(f"installing into {folder}, minutes ...", file=sys.stderr)
    constraint = ["--constraint", ROOT / "constraints.txt"]
    try:
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *constraint, *packages], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Failed(str(error)) from error
    (folder / "made-from").write_text(wanted)
    return python


class Process:
    """A contestant's process, idle between requests."""

    def __init__(self, contestant: Contestant) -> None:
        python = python_of(contestant.packages)
        self.contestant = contestant
        self.threads = self.batches = 0  # what it is told to use, and how many are timed
        self.finding: dict[str, Any] = {}
        self._pipe, theirs = multiprocessing.Pipe()
        # PASSIVE, because waiting threads of OpenMP would spin into the next contestant's turn.
        environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "TF_CPP_MIN_LOG_LEVEL": "2"}
        with theirs:
            # A session of its own, so that its worker processes end with it, and Ctrl-C reaches
            # only the runner.
            self._process = subprocess.Popen(
                [python, "-m", "peers.worker", str(theirs.fileno())],
                cwd=Path(__file__).parent,
                pass_fds=[theirs.fileno()],
                stdout=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )

    def ask(self, *request: Any) -> Any:
        """Send a request and return the answer, or raise `Failed`."""
        try:
            self._pipe.send(request)
            if not self._pipe.poll(ANSWER_SECONDS):
                self.close()
                raise Failed(f"no answer within {ANSWER_SECONDS:.0f} s")
            answer, error = self._pipe.recv()
        except (OSError, EOFError):
            raise Failed(f"it has ended with {self._process.wait()}, see above") from None
        if error:
            raise Failed(error)
        return answer

    def prepare(self, work: Work, seconds: float) -> None:
        """Choose the threads and the number of batches to time, and check the output."""
        best = 0.0
        for threads in sorted({1, work.threads}) if self.contestant.threads else [work.threads]:
            self._start(work, threads)
            batches, rate = _calibrated(lambda n: self.ask("measure", n), work.period, seconds)
            if rate > best:
                best, self.threads, self.batches = rate, threads, batches
        if self.threads != threads:
            self._start(work, self.threads)
        if self.contestant.title not in (CONTESTANTS[name].title for name in LIMITS.values()):
            self.finding = self.ask("check")
            low, high = self.finding["uses"]
            if self.contestant.exact and (low, high) != (work.factor, work.factor):
                raise Failed(f"examples were used {low} to {high} times, not {work.factor}")

    def _start(self, work: Work, threads: int) -> None:
        function = getattr(self.contestant, work.kind)
        self.ask("prepare", dataclasses.replace(work, threads=threads), function)

    def close(self) -> None:
        """End the process and its child processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._pipe.close()


def _calibrated(
    seconds_for: Callable[[int], float], period: int, wanted: float
) -> tuple[int, float]:
    """Return how many batches take about the wanted seconds, in whole periods, and their rate."""
    batches = period
    taken = seconds_for(batches)
    while taken < wanted / 4:
        growth = min(32.0, max(2.0, wanted / max(taken, 1e-9)))
        batches = math.ceil(batches * growth / period) * period
        taken = seconds_for(batches)
    return max(1, round(batches * wanted / taken / period)) * period, batches / taken


def measured(
    work: Work, processes: dict[str, Any], rounds: int, seconds: float
) -> tuple[dict[str, Sample], dict[str, str]]:
    """Check and measure all that can do this work; return batches a second, and failures by name.

    If one fails, the others begin anew, so that all samples have the same rounds.
    """
    failures: dict[str, str] = {}
    ready = {name: each for name, each in processes.items() if getattr(each.contestant, work.kind)}
    for name, each in ready.items():
        try:
            each.prepare(work, seconds)
        except Failed as failed:
            failures[name] = str(failed)

    def turn(name: str) -> float:
        try:
            return ready[name].batches / ready[name].ask("measure", ready[name].batches)
        except Failed as failed:
            failures[name] = str(failed)
            raise

    while True:
        turns = {name: lambda name=name: turn(name) for name in ready if name not in failures}
        with contextlib.suppress(Failed):
            samples = interleaved(work.kind, rounds, turns)
            break
    for each in ready.values():
        with contextlib.suppress(Failed):
            each.ask("release")
    return samples, failures


def add(report: Report, name: str, work: Work, processes: dict[str, Any], rates: Any) -> None:
    """Add a workload's table, the fastest first, and what was found of each contestant."""
    title, kind, *_, target = WORKS[name]
    batches = kind == "batches"
    unit = "us/batch" if batches else "examples/s"

    def shown(rate: Sample) -> Sample:
        return Sample(
            tuple(1e6 / value if batches else value * work.batch for value in rate.values)
        )

    limit = rates[LIMITS[kind]]
    for each in sorted(rates, key=lambda each: -rates[each].median):
        contestant, process = CONTESTANTS[each], processes[each]
        goal = target if contestant.packages else ""
        ratio = rates[PYECHO] / rates[each]
        row = Row(contestant.title, shown(rates[each]), unit, shown(limit), "", ratio, goal)
        report.add(title, [row])
        if process.finding and not batches:
            low, high = process.finding["uses"]
            report.note(
                f"{title}: {contestant.title}, {process.threads} threads: {low} to {high} uses, "
                f"{process.finding['distinct']:.0%} of a batch distinct, moved by "
                f"{process.finding['mixing']:.2g} pools"
            )


def parsed_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = new_parser(__doc__, rounds=7)
    for option, known in (("--only", CONTESTANTS), ("--work", WORKS)):
        names = f"some of {', '.join(known)} (default: all)"
        everything = tuple(known)
        parser.add_argument(
            option, type=some_of(known), default=everything, metavar="NAME,...", help=names
        )
    return parser.parse_args(arguments)


def main(options: argparse.Namespace) -> int:
    """Measure and report."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # children end as well
    report = new_report("peers", "pyecho and its peers", options)
    report.ratio_name = "pyecho's speed over its speed"
    report.partial |= options.only != tuple(CONTESTANTS) or options.work != tuple(WORKS)
    always = {PYECHO, *LIMITS.values()}
    failed = False
    with contextlib.ExitStack() as stack:
        processes = {}
        for name, contestant in CONTESTANTS.items():
            if name not in always.union(options.only):
                continue
            try:
                processes[name] = process = Process(contestant)
            except Failed as error:
                failed = True
                report.note(f"{contestant.title} could not be installed: {error}")
            else:
                stack.callback(process.close)
        pins = {pin for each in processes.values() for pin in each.contestant.packages}
        report.facts["packages"] = ", ".join(sorted(pins))
        for name in options.work:
            _, kind, shape, least, pools, _ = WORKS[name]
            # All divide each other, else the last batch of separately shuffled blocks is short.
            cores = available_cores()
            pool = -(-least // (256 * cores)) * 256 * cores
            work = Work(kind, shape, pool * pools, pool, cores)
            seconds = 0.05 if options.quick else 1.0
            rates, failures = measured(work, processes, options.rounds, seconds)
            add(report, name, work, processes, rates)
            for each, why in failures.items():
                failed = True
                report.note(f"{WORKS[name][0]}: {CONTESTANTS[each].title} failed: {why}")
    finish(report, options)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(parsed_arguments()))
