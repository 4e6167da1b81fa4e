"""Reads a trace and checks it against the trace event format, as far as pyecho uses it."""

import json

NAMES = {
    *("source", "put", "wait for room", "plan", "gather"),
    *("augment", "upload", "echo", "wait", "step"),
}
NUMBER, TEXT = (int, float), str
COMMON = {"ph": TEXT, "name": TEXT, "cat": TEXT, "pid": int, "tid": int}
FIELDS = {
    "M": COMMON | {"args": dict},
    "X": COMMON | {"ts": NUMBER, "dur": NUMBER},
    "C": COMMON | {"ts": NUMBER, "args": dict},
    "i": COMMON | {"ts": NUMBER, "s": TEXT},
}
"""The fields of an event by its phase; a span may have ``args`` as well."""


class Trace:
    """A trace that was read: what is wrong with the file is an AssertionError."""

    def __init__(self, path):
        document = json.loads(path.read_text())
        assert set(document) == {"displayTimeUnit", "otherData", "traceEvents"}
        assert document["displayTimeUnit"] == "ms"
        self.dropped = document["otherData"]["dropped_events"]
        self.events = document["traceEvents"]
        self.threads, self.spans, self.counters = {}, [], []
        for event in self.events:
            self._add(event)
        assert len({event["pid"] for event in self.events}) == 1
        assert {span["tid"] for span in self.spans} <= set(self.threads)
        times = [event["ts"] for event in self.events if "ts" in event]
        assert times == sorted(times)
        self._check_nesting()

    def _add(self, event):
        phase, fields = event["ph"], FIELDS[event["ph"]]
        assert set(event) - ({"args"} if phase == "X" else set()) == set(fields), event
        assert all(isinstance(event[name], kind) for name, kind in fields.items()), event
        assert event.get("ts", 0) >= 0 <= event.get("dur", 0), event
        if event["name"] == "thread_name":
            assert event["tid"] > 0
            assert self.threads.setdefault(event["tid"], event["args"]["name"])
        elif phase == "X":
            assert event["name"] in NAMES, event
            assert event.get("args", {"items": 1})["items"] > 0
            self.spans.append(event)
        elif phase == "C":
            self.counters.append(event)

    def _check_nesting(self):
        """Spans of a thread follow each other or lie within each other."""
        open_ends = {tid: [] for tid in self.threads}
        for span in self.spans:
            ends, end = open_ends[span["tid"]], span["ts"] + span["dur"]
            while ends and ends[-1] <= span["ts"] + 1e-6:
                ends.pop()
            assert not ends or end <= ends[-1] + 1e-6, (self.threads[span["tid"]], span)
            ends.append(end)

    def of(self, name, thread=None):
        """The spans of this name, in threads of this name."""
        return [
            span
            for span in self.spans
            if span["name"] == name and thread in (None, self.threads[span["tid"]])
        ]

    def seconds(self, name):
        return sum(span["dur"] for span in self.of(name)) * 1e-6

    def lanes(self):
        """The names of the threads, each with the names of its spans."""
        return {(self.threads[span["tid"]], span["name"]) for span in self.spans}
