"""Batches on a device beside a thread of plain Python, as most training loops have one.

Each way of echoing, with 2 and 20 leaves, batches of 256 KB. Two numbers:

    releases   of the GIL in `next()` while a batch is ready: beside such a thread each costs 5 ms
    batches/s  beside the thread, over the least of: the same loader alone; a bare list of ready
               batches, dropped one after the other beside the same thread

Works on a GPU and on an emulated one (`make test-cuda` makes the environment), on an idle machine
with two cores or more. The emulator runs kernels in Python, so there the numbers of ways that have
some in `next()` (`Device(dtype=)`) say nothing. Needs a C compiler and a libpython.so to count.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import finish, new_parser, new_report, sample
from gpu.setup import WARM_UP_BATCHES

import pyecho.torch
from pyecho import Field
from pyecho.bench.row import Row
from pyecho.bench.sampling import turns

BATCH, ROW_BYTES, ROWS, LEAVES = 64, 4096, 12_800, (2, 20)
READY, READY_SECONDS, COUNTED = 4000, 0.02, 50
COUNTER = """
#define _GNU_SOURCE
#include <dlfcn.h>
static __thread long count;
long gil_releases(void) { return count; }
void* PyEval_SaveThread(void) {
  ++count;
  return ((void* (*)(void))dlsym(RTLD_NEXT, "PyEval_SaveThread"))();
}
"""
DEVICE = "cuda"
Device = partial(pyecho.torch.Device, DEVICE)


def batch_as_it_is(batch: Any, *_: Any) -> Any:
    """Return the batch."""
    return batch


EXAMPLES = {"batch_size": BATCH, "shuffle_buffer": 4 * BATCH, "device": Device()}
WAYS: dict[str, dict[str, Any]] = {
    "host echo": {},
    "batch echo": {"batch_size": None, "shuffle_buffer": 4},
    "augment=": {"augment": batch_as_it_is},
    "augment_example=": {"augment_example": batch_as_it_is},
    "collate_fn=": {"collate_fn": torch.utils.data.default_collate},
    "ragged": {"pad": None},
    "padded": {"pad": 0},
    "Device(dtype=)": {"device": Device(dtype=torch.bfloat16)},
    "Device(augment=)": {"device": Device(augment=batch_as_it_is)},
    "Device(echo=True)": {"device": Device(echo=True)},
}


def loader_of(way: str, leaves: int) -> pyecho.torch.EchoLoader:
    """Return a loader of rows that have so many leaves, each used twice."""
    options = EXAMPLES | WAYS[way]
    width = ROW_BYTES // leaves
    columns = {f"{n}": np.zeros((ROWS, 1, width), np.uint8) for n in range(leaves)}
    source: Any = columns
    if options["batch_size"] is None:
        source = [
            {name: column[begin : begin + BATCH] for name, column in columns.items()}
            for begin in range(0, ROWS, BATCH)
        ]
    elif "pad" in options:
        pad = options.pop("pad")
        field = Field((None, 1), "uint8", max_bytes=width, pad=pad)
        options["fields"] = dict.fromkeys(columns, field)
        lengths = np.random.default_rng(0).integers(width // 2, width, ROWS)
        row = np.zeros((width, 1), np.uint8)
        source = [dict.fromkeys(columns, row[:length]) for length in lengths.tolist()]
    elif "augment_example" in options or "collate_fn" in options:
        source = [{name: column[n] for name, column in columns.items()} for n in range(ROWS)]
    return pyecho.torch.EchoLoader(source, 2, **options)


@contextlib.contextmanager
def beside(wanted: bool) -> Iterator[None]:
    """Run a thread that holds the GIL whenever it can, if wanted."""
    ended = threading.Event()

    def count() -> None:
        while not ended.is_set():
            for _ in range(1000):
                pass

    thread = threading.Thread(target=count)
    if wanted:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if wanted:
            thread.join()


def endless(loader: pyecho.torch.EchoLoader) -> Iterator[Any]:
    """Yield batches of one epoch after the other."""
    return itertools.chain.from_iterable(itertools.repeat(loader))


def rate(batches: Iterator[Any], seconds: float, with_thread: bool) -> float:
    """Return batches a second, if each is dropped."""
    for _ in range(WARM_UP_BATCHES):
        next(batches)
    count, spent = 0, 0.0
    with beside(with_thread):
        began = time.perf_counter()
        while spent < seconds and next(batches, None) is not None:
            count += 1
            spent = time.perf_counter() - began
        torch.cuda.synchronize()
        return count / (time.perf_counter() - began)


def bare_rate(leaves: int, seconds: float) -> float:
    """Return the same of batches that are ready; their size does not matter."""
    ready = [[torch.empty(1, device=DEVICE) for _ in range(leaves)] for _ in range(READY)]
    return rate((ready.pop() for _ in range(READY)), seconds, with_thread=True)


def counter() -> Callable[[], int] | None:
    """Return what counts the releases of this thread so far; None if nothing can."""
    try:
        count: Any = ctypes.PyDLL(None).gil_releases  # whose calls keep the GIL
    except AttributeError:
        return None
    before = count()
    torch.cuda.synchronize()  # lets go of the GIL
    return count if count() > before else None


def releases(batches: Iterator[Any]) -> list[int]:
    """Return how often each `next()` lets go of the GIL, with a batch ready."""
    so_far = counter()
    assert so_far is not None
    found = []
    for _ in range(COUNTED):
        time.sleep(READY_SECONDS)
        before = so_far()
        batch = next(batches)
        found.append(so_far() - before)
        del batch
    return found


def measure(report: Any, way: str, leaves: int, seconds: float, rounds: int) -> None:
    """Add the rows of a way."""
    name = f"{way}, {leaves} leaves"
    with loader_of(way, leaves) as loader:
        iterator = endless(loader)
        contestants = {
            "alone": partial(rate, iterator, seconds, False),
            "beside": partial(rate, iterator, seconds, True),
            "bare": partial(bare_rate, leaves, seconds),
        }
        found = {key: sample(values) for key, values in turns(name, rounds, contestants).items()}
        limit = found["alone"].combined(min, found["bare"])
        what = "min(alone, a bare list beside)"
        row = Row(name, found["beside"], "batches/s", limit, what, target=">= 0.8")
        report.add("Beside a thread of plain Python", [row])
        for key in ("alone", "bare"):
            report.note(f"{name}: {key} {found[key].median:.0f} batches/s")
        if counter() is not None:
            found_releases = releases(iterator)
            mean = sample([sum(found_releases) / len(found_releases)])
            row = Row(name, mean, "a batch", target="<= 0.1")
            report.add("Releases of the GIL in next(), with a batch ready", [row])
        del iterator


def with_counter() -> None:
    """Start this program again, with a library that counts releases."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None or "LD_PRELOAD" in os.environ:
        return
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "counter.so"
        command = [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
        subprocess.run(command, input=COUNTER, text=True, check=True)
        environment = os.environ | {"LD_PRELOAD": str(library)}
        command = [sys.executable, *sys.argv]
        sys.exit(subprocess.run(command, env=environment, check=False).returncode)


if __name__ == "__main__":
    parser = new_parser(__doc__, rounds=3, seconds=1)
    parser.add_argument("--only", choices=WAYS, nargs="+", default=list(WAYS), metavar="WAY")
    options = parser.parse_args()
    with_counter()
    seconds = 0.05 if options.quick else options.seconds
    report = new_report("gil", "Beside plain Python", options)
    report.facts["device"] = torch.cuda.get_device_name()
    report.partial |= len(options.only) < len(WAYS)
    for way, leaves in itertools.product(options.only, LEAVES):
        measure(report, way, leaves, seconds, options.rounds)
    if counter() is None:
        report.note("releases cannot be counted with this Python, or without a C compiler")
    finish(report, options)
