"""The processes that train. Each has the data, and one thread to compute with."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from dataclasses import dataclass
from pathlib import Path

import torch

from paper.conditions import Job
from paper.fashion import Fashion, MoreFashion
from paper.network import Line, Network
from paper.text import Text
from paper.train import Result, train
from paper.workload import Workload


@dataclass(frozen=True)
class Places:
    """The places of the data."""

    fashion: Path | None
    """None where no workload needs it."""
    text: Path | None
    cache: Path


_places: Places
_workloads: dict[str, Workload] = {}


def initialize(places: Places, niceness: int) -> None:
    """Prepare a process. It ignores Ctrl-C, because its parent handles it and then ends it."""
    global _places
    _places = places
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(niceness)
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process if the parent is killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def workload(name: str) -> Workload:
    """Return the workload; it is read at its first use."""
    if name not in _workloads:
        _workloads[name] = load(name, _places)
    return _workloads[name]


def load(name: str, places: Places) -> Workload:
    """Read a workload's data."""
    if name == Text.name:
        return Text(places.text)
    kinds: dict[str, type[Fashion]] = {each.name: each for each in (Fashion, MoreFashion)}
    assert places.fashion is not None
    return kinds[name](places.fashion)


def execute(job: Job) -> Result:
    """Train as fast as this process can."""
    return train(workload(job.condition.workload), job)


def calibrate() -> Line:
    """Find the bandwidth for Fig. 4."""
    with _network() as network:
        return network.calibrate()


def execute_timed(job: Job, line: Line) -> Result:
    """Train from the slow network."""
    with _network() as network:
        result = network.train(job, line.bandwidth)
    result.upstream_seconds = line.upstream_seconds
    return result


def _network() -> Network:
    fashion = workload("fashion-more")
    assert isinstance(fashion, Fashion)
    return Network(fashion, _places.cache)
