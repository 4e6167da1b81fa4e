"""Ctrl-C is answered in every wait, by KeyboardInterrupt in the main thread."""

import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from scripts import await_idle, finished, started

import pyecho

# A bug of others: Ctrl-C unanswered in a native wait.

WAITS = {
    "the iterator of example echoing": """
        batches = iter(pyecho.EchoLoader(stuck(1), 1, batch_size=4, shuffle_buffer=0))
        blocked = lambda: next(batches)
    """,
    "the iterator of batch echoing": """
        uses = iter(pyecho.EchoLoader(stuck(1), 1))
        next(uses)
        blocked = lambda: next(uses)
    """,
    "an iterator behind a blocked augment": """
        uses = iter(pyecho.EchoLoader(itertools.count(), 2, augment=lambda b, rng: NEVER.wait()))
        blocked = lambda: next(uses)
    """,
    "put on a full buffer": """
        buffer = pyecho.EchoBuffer(pyecho.Field(64, float), batch_size=4)
        def blocked():
            while True:
                buffer.put(np.zeros(64))
    """,
    "put with a timeout": """
        buffer = pyecho.EchoBuffer(pyecho.Field(64, float), batch_size=4)
        def blocked():
            while True:
                buffer.put(np.zeros(64), timeout=3600)
    """,
    "put_batch on a full buffer": """
        buffer = pyecho.EchoBuffer(pyecho.Field(64, float), batch_size=4)
        blocked = lambda: buffer.put_batch(np.zeros((10_000, 64)))
    """,
    "reserve on a full buffer": """
        buffer = pyecho.EchoBuffer(pyecho.Field(64, float), batch_size=4)
        def blocked():
            while True:
                with buffer.reserve() as view:
                    view[...] = 0
    """,
    "the iterator of a buffer": """
        buffer = pyecho.EchoBuffer(pyecho.Field(64, float), batch_size=4)
        batches = iter(buffer)
        blocked = lambda: next(batches)
    """,
}


@pytest.mark.parametrize("wait", WAITS)
def test_ctrl_c_is_answered_in(wait):
    script = (
        WAITS[wait]
        + """
        import warnings
        print("ready", flush=True)
        try:
            blocked()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """
    )
    with started(script) as process:
        assert process.stdout.readline() == "ready\n"
        await_idle(process)
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        assert time.monotonic() - sent < 2, "half a second is promised; this machine may be busy"
        finished(process)


def test_ctrl_c_is_answered_between_many_short_waits():
    script = """
        buffer = pyecho.EchoBuffer(pyecho.Field(64, float), batch_size=4, factor=1)
        def take():
            for number, _ in enumerate(buffer):
                if number == 10:
                    print("ready", flush=True)
        taker = threading.Thread(target=take)
        taker.start()
        try:
            buffer.put_batch(np.broadcast_to(np.zeros(64), (2**40, 64)))
        except KeyboardInterrupt:
            buffer.close()
        taker.join()
    """
    with started(script) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        finished(process)


def test_put_that_was_interrupted_took_nothing():
    script = """
        buffer = pyecho.EchoBuffer(pyecho.Field((), int), batch_size=1, factor=1)
        number = 0
        print("ready", flush=True)
        try:
            while True:
                buffer.put(number)
                number += 1
        except KeyboardInterrupt:
            buffer.close()
        assert [int(batch[0]) for batch in buffer] == list(range(number))
    """
    with started(script) as process:
        assert process.stdout.readline() == "ready\n"
        await_idle(process)
        process.send_signal(signal.SIGINT)
        finished(process)


def test_other_signal_handlers_run_during_a_wait_and_it_goes_on():
    script = """
        import signal
        release = threading.Event()
        def source():
            yield 1
            release.wait()
            yield 2
        signal.signal(signal.SIGUSR1, lambda *_: release.set())
        uses = iter(pyecho.EchoLoader(source(), 1))
        next(uses)
        print("ready", flush=True)
        assert next(uses) == 2
    """
    with started(script) as process:
        assert process.stdout.readline() == "ready\n"
        await_idle(process)
        process.send_signal(signal.SIGUSR1)
        finished(process)


class _Interrupting(Mapping[str, Any]):
    """A mapping in whose methods Ctrl-C arrives now and then."""

    reads = 0

    def __init__(self, entries: Mapping[str, Any]) -> None:
        self.entries = dict(entries)

    def __getitem__(self, key: str) -> Any:
        return self.entries[key]

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[str]:
        _Interrupting.reads += 1
        if _Interrupting.reads % 37 == 0:
            raise KeyboardInterrupt
        return iter(self.entries)


@pytest.mark.parametrize("batch_size", [None, 4])
def test_ctrl_c_in_the_code_of_an_item_loses_no_use(batch_size: int | None) -> None:
    source = [_Interrupting({"x": np.full(3, i), "y": i}) for i in range(50)]
    batches = iter(pyecho.EchoLoader(source, 3, batch_size=batch_size, threads=0))
    uses: Counter[int] = Counter()
    interrupts = 0
    while True:
        try:
            batch = next(batches)
        except StopIteration:
            break
        except KeyboardInterrupt:
            interrupts += 1
            continue
        uses.update(np.atleast_1d(batch["y"]).tolist())
    assert interrupts > 0
    assert uses == Counter(dict.fromkeys(range(50), 3))
