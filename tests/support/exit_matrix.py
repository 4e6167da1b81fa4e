"""Scripts that leave an interpreter in the middle of something: sources x forms x stages x ends."""

from __future__ import annotations

import itertools
import json
import signal
import textwrap
from collections.abc import Iterable
from typing import Any, NamedTuple

from scripts import LIMIT_SECONDS, started

PRELUDE = """
import itertools, signal, sys, threading, time, warnings
import numpy as np
import pyecho

warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)  # on one processor
warnings.filterwarnings("ignore", ".*use of fork", DeprecationWarning)
warnings.filterwarnings("ignore", "the consumer keeps batches", ResourceWarning)
# A shell starts background jobs with Ctrl-C ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

NEVER = threading.Event()

class Numbers:
    "Numbers of rows: 12 in a pass, but in the pass in which the script ends there is no end."
    def __init__(self, last, blocks):
        self.last, self.blocks, self.passes = last, blocks, 0
    def __iter__(self):
        self.passes += 1
        for number in range(12) if self.passes < self.last else itertools.count():
            if self.blocks and number == 12:
                NEVER.wait()
            yield number % 12

class Rows:
    "A source whose iterators are generators."
    def __init__(self, numbers, rows):
        self.numbers, self.rows = numbers, rows
    def __iter__(self):
        return (self.rows[number] for number in self.numbers)

class Dataset:
    def __init__(self, rows):
        self.rows = rows
    def __getitem__(self, number):
        return self.rows[number]

rows = np.arange(24.0).reshape(12, 2)
numbers = Numbers({last}, {blocks})
"""

TORCH = """
import torch, pyecho.torch
from torch.utils.data import DataLoader

dataset = Dataset(torch.from_numpy(rows))
"""


class Source(NamedTuple):
    """Source of a script."""

    source: str
    torch: bool = False
    blocks: bool = False


SOURCES = {
    "array": Source("rows"),
    "generator": Source("Rows(numbers, rows)"),
    "blocked": Source("Rows(numbers, rows)", blocks=True),
    "loader": Source("pyecho.EchoLoader(Rows(numbers, rows), 2)"),
    "tensor": Source("torch.from_numpy(rows)", torch=True),
    "DataLoader": Source("DataLoader(dataset, batch_size=None, sampler=numbers)", torch=True),
    "DataLoader of 2": Source(
        "DataLoader(dataset, batch_size=None, sampler=numbers, num_workers=2)", torch=True
    ),
    "DataLoader of 1 that persists": Source(
        "DataLoader(dataset, batch_size=None, sampler=numbers, num_workers=1,"
        " persistent_workers=True)",
        torch=True,
    ),
}

FORMS = {
    "batch echoing": "",
    "threads=0": "batch_size=2, threads=0",
    "threads=1": "batch_size=2, threads=1",
    "threads=2": "batch_size=2, threads=2",
    "augment": "batch_size=2, augment=lambda batch, rng: batch + rng.random()",
    "augment in 2": "augment=lambda batch, rng: batch + 1, augment_workers=2",
    "epochs=3": "batch_size=2, epochs=3",
    "collate_fn": "batch_size=2, collate_fn=list",
}

STAGES = {
    "before the first next": "batches = iter(loader)",
    "after one batch": "batches = iter(loader); next(batches)",
    "in epoch 2": "for _ in loader: pass\nbatches = iter(loader); next(batches)",
    "with views": "batches = iter(loader); kept = [next(batches)[1:] for _ in range(2)]",
    "abandoned": "batches = iter(loader); next(batches); del batches; batches = loader",
    "in a cycle": "batches = iter(loader); next(batches); loader.parts = loader, batches",
    "global": "global batches, batch; batches = iter(loader); batch = next(batches)",
}


class End(NamedTuple):
    """End of a script, as it is seen from outside."""

    code: str
    exit_code: int = 0
    error: str = ""
    needs_batch: bool = True


ENDS = {
    "end": End("", needs_batch=False),
    "break": End("for batch in batches: break"),
    "exception": End("raise ValueError('mine')", 1, "ValueError: mine", needs_batch=False),
    "Ctrl-C": End(
        """
        def press(number, frame):
            while frame is not None and frame.f_code.co_name != "__del__":
                frame = frame.f_back
            if frame is None:
                signal.raise_signal(signal.SIGINT)
            signal.setitimer(signal.ITIMER_REAL, 0.01)  # CPython loses it in a finalizer
        signal.signal(signal.SIGALRM, press)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        while True:
            for batch in batches: pass
            batches = loader
        """,
        -signal.SIGINT,
        "KeyboardInterrupt",
        needs_batch=False,
    ),
    "sys.exit": End("sys.exit(3)", 3, needs_batch=False),
    "sys.exit in a thread": End(
        """
        def consume():
            for batch in batches: sys.exit(3)  # ends this thread
        threading.Thread(target=consume).start()
        """
    ),
    "a daemon thread goes on": End(
        """
        begun = threading.Event()
        def consume(batches):
            while True:
                for batch in batches: begun.set()
                batches = loader
        threading.Thread(target=consume, args=(batches,), daemon=True).start()
        begun.wait()
        """
    ),
}


class Exit(NamedTuple):
    """One way to leave an interpreter."""

    source: str
    form: str
    stage: str
    end: str

    def __str__(self) -> str:
        """Name it as a test is named."""
        return ", ".join(self)

    @property
    def possible(self) -> bool:
        """True if the script can end cleanly at all.

        An abandoned source that blocks gives no batch again. With threads=0 PyTorch runs in the
        program's own thread: Python before 3.14 aborts when it ends a daemon thread there. And
        Ctrl-C meets PyTorch as it forks worker processes (CPython loses it then) or receives a
        tensor from them (they complain).
        """
        source, end = SOURCES[self.source], ENDS[self.end]
        if source.torch and self.form == "threads=0":
            workers = "num_workers" in source.source
            return "daemon" not in self.end and not (workers and self.end == "Ctrl-C")
        return not (source.blocks and self.stage == "abandoned" and end.needs_batch)

    @property
    def script(self) -> str:
        """The script."""
        source = SOURCES[self.source]
        last = 2 if self.stage == "in epoch 2" else 1
        prelude = PRELUDE.replace("{last}", str(last)).replace("{blocks}", str(source.blocks))
        module = "pyecho.torch" if source.torch else "pyecho"
        main = "\n".join(
            [
                f"source = {source.source}",
                f"loader = {module}.EchoLoader(source, 2, shuffle_buffer=2, {FORMS[self.form]})",
                STAGES[self.stage],
                textwrap.dedent(ENDS[self.end].code),
            ]
        )
        return (
            prelude
            + (TORCH if source.torch else "")
            + f"\ndef main():\n{textwrap.indent(main, '    ')}\n\nmain()\n"
        )

    def problem(self, code: int | None, output: str, errors: str) -> str:
        """Return what is not clean about an exit with this code and this output, "" if all is."""
        end = ENDS[self.end]
        clean = not output and code == end.exit_code
        if end.error:
            clean = clean and errors.strip().endswith(end.error) and errors.count("Traceback") == 1
        else:
            clean = clean and not errors
        return "" if clean else f"{self}: exit code {code}\n{output}{errors}"


EXITS = [
    exit
    for exit in itertools.starmap(Exit, itertools.product(SOURCES, FORMS, STAGES, ENDS))
    if exit.possible
]


def pairs_of(exit: Exit) -> set[Any]:
    """Return the pairs of values of two dimensions that occur in it."""
    return set(itertools.combinations(enumerate(exit), 2))


def pairwise(exits: Iterable[Exit]) -> list[Exit]:
    """Choose a few in which each pair of values occurs that occurs in any."""
    pairs = {exit: pairs_of(exit) for exit in exits}
    missing = set().union(*pairs.values())
    chosen = []
    while missing:
        pair = min(missing)
        able = [exit for exit in pairs if pair in pairs[exit]]
        best = max(able, key=lambda exit: len(pairs[exit] & missing))
        missing -= pairs[best]
        chosen.append(best)
    return chosen


# Forks an interpreter for each script: importing PyTorch takes longer than most of them. It ends as
# any other does. Whatever is left behind keeps the pipe open.
LAUNCHER = """
import json, os, select, signal, tempfile, warnings
warnings.filterwarnings("ignore", ".*use of fork", DeprecationWarning)
{imports}

gc.freeze()
for script in {scripts}:
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        alive, held = os.pipe()
        child = os.fork()
        if child == 0:
            os.setpgrp()
            os.close(alive)
            os.dup2(output.fileno(), 1)
            os.dup2(errors.fileno(), 2)
            break
        os.close(held)
        if not select.select([alive], [], [], {limit})[0]:
            os.kill(child, signal.SIGABRT)  # faulthandler, on in dev mode, shows where it hangs
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if not select.select([alive], [], [], 0)[0]:
            os.killpg(child, signal.SIGKILL)
            code = "left a process"
        os.close(alive)
        seen = [file.seek(0) or file.read() for file in (output, errors)]
        print(json.dumps([code, *seen]), flush=True)
else:
    script = ""
exec(script)
"""


def problems_of(exits: list[Exit]) -> list[str]:
    """Run the scripts of exits, one after the other; return what is not clean about them."""
    launcher = LAUNCHER.format(
        imports=TORCH.partition("\n\n")[0] if any(SOURCES[e.source].torch for e in exits) else "",
        scripts=[exit.script for exit in exits],
        limit=LIMIT_SECONDS,
    )
    with started(launcher) as process:
        outcomes, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    found = (
        exit.problem(*json.loads(line))
        for exit, line in zip(exits, outcomes.splitlines(), strict=True)
    )
    return [problem for problem in found if problem]
