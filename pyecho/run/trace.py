"""Traces: activity of each thread over time, written as a Chrome trace."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from pyecho import _core
from pyecho._core import ConfigError, EchoError

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Self

COUNTER = "fill"
"""The one event that is a value at a time, not a span."""

_CONSUMERS = ("wait", "step")  # spans that only consumers have
_NOTHING = nullcontext()
_changing = threading.Lock()  # held while a recording begins or ends
_running: weakref.ref[Trace] | None = None  # dead if Ctrl-C has cut the trace short
_nvtx: Any = None  # PyTorch's module, while a trace is recorded and if it was built with CUDA


def trace(path: str | os.PathLike[str]) -> AbstractContextManager[object]:
    """Record what the threads of this process do in a ``with`` block, and write a Chrome trace.

    ::

        with pyecho.trace("run.json"):  # open the file in https://ui.perfetto.dev
            for batch in loader: ...

    All loaders and buffers of the process are in it, also ones that run before, begin in the block
    or go on after it; worker processes are not. The spans are listed in docs/tracing_and_advice.md.
    The block may begin and end in any thread.

    At the end of the block, also by an exception, the file is written to a new name in its folder
    and then renamed: a crash leaves an older file as it was, and a link is replaced, not followed.
    A forked child of the block writes nothing.

    A relative path counts from the folder that is current now. The beginning raises `ConfigError`
    if the path is a folder or a device, or lies in no folder, and `EchoError` while another trace
    is being recorded: a process records one at a time. The end raises `OSError` if the file cannot
    be written.
    """
    return Trace(path)


class Trace:
    """The context manager of `trace`. Without a path the recording stays in `found`."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        from pathlib import Path  # slow to import

        self.path = None if path is None else Path(path).absolute()
        self.found: dict[str, Any] = {}
        """Recording, after the block: see ``_core.trace_stop``."""
        self._process = 0

    def __enter__(self) -> Self:
        """Begin to record."""
        global _running, _nvtx
        path = self.path
        if path and (not path.parent.is_dir() or (path.exists() and not path.is_file())):
            raise ConfigError(f"a trace needs the path of a file in an existing folder, got {path}")
        torch = sys.modules.get("torch")
        # Another thread may be importing it: then it has not all of its modules.
        has_cuda = getattr(getattr(torch, "version", None), "cuda", None)
        nvtx = getattr(getattr(torch, "cuda", None), "nvtx", None) if has_cuda else None
        with _changing:
            running = _running and _running()
            if running is None:
                _core.trace_stop()  # in case Ctrl-C has cut short another one
            if not _core.trace_start():
                raise EchoError(
                    f"{running} is being recorded already; a process records one trace at a time, "
                    "with the spans of all its loaders, and advise() records one"
                )
            self._process = os.getpid()
            _running, _nvtx = weakref.ref(self), nvtx
        return self

    def __exit__(self, *exception: object) -> None:
        """End the recording and write it, also after an error; not in a forked child."""
        global _running, _nvtx
        with _changing:
            _running = _nvtx = None
            found = _core.trace_stop()
        if os.getpid() != self._process:
            return
        if self.path is None:
            self.found = found
        else:
            write(self.path, events_of(found), found["dropped"])

    def __str__(self) -> str:
        """Return its name in messages."""
        return "a trace" if self.path is None else f"the trace {self.path}"


def span(name: str) -> AbstractContextManager[object]:
    """Return a context that is recorded as a span of the calling thread, if a trace is recorded."""
    return _NOTHING if _running is None else _Span(name)


class _Span:
    def __init__(self, name: str) -> None:
        self._name = name
        self._nvtx = _nvtx  # the trace may end before the span

    def __enter__(self) -> None:
        if self._nvtx is not None:
            self._nvtx.range_push(f"pyecho: {self._name}")
        self._began = _core.trace_now()

    def __exit__(self, *exception: object) -> None:
        _core.trace_span(self._name, self._began)
        if self._nvtx is not None:
            self._nvtx.range_pop()


# ---------------------------------------------------------------- the file


class Event(NamedTuple):
    """A span of a thread in a recording, or a value of the `COUNTER`."""

    name: str
    thread: int
    begin_ns: int
    end_ns: int
    """Of a value: the number of its pool."""
    items: int

    @property
    def nanoseconds(self) -> int:
        """How long a span took."""
        return self.end_ns - self.begin_ns


def events_of(recording: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the events of a recording as docs/tracing_and_advice.md lists them, by their times."""
    events, origin = list(map(Event._make, recording["events"])), recording["begin_ns"]
    consumers = {event.thread for event in events if event.name in _CONSUMERS}
    common = {"pid": os.getpid(), "cat": "pyecho"}
    yield common | {"ph": "M", "name": "process_name", "tid": 0, "args": {"name": "pyecho"}}
    for thread, name in enumerate(recording["threads"], 1):
        shown = name or ("consumer" if thread - 1 in consumers else "thread")
        yield common | {"ph": "M", "name": "thread_name", "tid": thread, "args": {"name": shown}}
    pools: dict[int, int] = {}
    for event in sorted(events, key=lambda event: (event.begin_ns, -event.end_ns)):
        found = common | {"name": event.name, "ts": (event.begin_ns - origin) / 1e3}
        if event.name == COUNTER:
            number = pools.setdefault(event.end_ns, len(pools) + 1)
            found |= {
                "ph": "C",
                "tid": 0,
                "name": COUNTER if number == 1 else f"{COUNTER} {number}",
            }
        else:
            found |= {"ph": "X", "tid": event.thread + 1, "dur": event.nanoseconds / 1e3}
        has_items = event.items or event.name == COUNTER
        yield found | ({"args": {"items": event.items}} if has_items else {})
    if recording["dropped"]:
        what = f"the recorder was full: {recording['dropped']} later events are missing"
        last = max(event.begin_ns for event in events)
        yield common | {"ph": "i", "name": what, "tid": 0, "ts": (last - origin) / 1e3, "s": "g"}


def write(path: Path, events: Iterable[dict[str, Any]], dropped: int) -> None:
    """Write a trace as JSON, one event a line, as a whole or not at all."""
    import json  # slow to import

    part = path.with_name(f".pyecho-{os.urandom(8).hex()}.part")
    try:
        with part.open("x") as file:
            head = {"pyecho": _core.build_info()["version"], "dropped_events": dropped}
            file.write(f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(head)},\n')
            file.write('"traceEvents": [\n')
            file.write(",\n".join(map(json.dumps, events)))
            file.write("\n]}\n")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
