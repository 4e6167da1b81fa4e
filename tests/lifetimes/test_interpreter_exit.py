"""The interpreter exits cleanly in the middle of anything: exit code 0, nothing on stderr, no hang.

What others had: `atexit` too late for Python threads, the GIL taken during finalization, aborts.
"""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from scripts import LIMIT_SECONDS, run, started

STATES = {
    "an unconsumed iterator in a global": """
        batches = iter(pyecho.EchoLoader(stuck(200), 2, batch_size=4))
    """,
    "a half consumed iterator in a global": """
        batches = iter(pyecho.EchoLoader(itertools.repeat(np.zeros(64)), 2, batch_size=4))
        for _ in range(20):
            next(batches)
    """,
    "a half consumed batch echo in a global": """
        uses = iter(pyecho.EchoLoader(itertools.count(), 3, shuffle_buffer=10))
        for _ in range(20):
            next(uses)
    """,
    "the feeder blocked on a full buffer": """
        loader = pyecho.EchoLoader(itertools.repeat(np.zeros(64)), 2, batch_size=4, threads=2)
        batches = iter(loader)
        while loader.stats().fresh < 8:
            pass
    """,
    "the source blocked for ever": """
        batches = iter(pyecho.EchoLoader(stuck(5), 2, batch_size=4))
        next(batches)
    """,
    "the source in a long sleep": """
        def source():
            yield 1
            time.sleep(3600)
        uses = iter(pyecho.EchoLoader(source(), 2))
        next(uses)
    """,
    "a daemon consumer in a wait": """
        batches = iter(pyecho.EchoLoader(stuck(1), 1, batch_size=4))
        def consume():
            with contextlib.suppress(pyecho.Closed):  # what it gets, should it still get anything
                next(batches)
        threading.Thread(target=consume, daemon=True).start()
    """,
    "a daemon consumer at work": """
        def consume():
            with contextlib.suppress(pyecho.Closed):
                for batch in pyecho.EchoLoader(itertools.repeat(np.zeros(64)), 2, batch_size=4):
                    batch += 1
        consumers = [threading.Thread(target=consume, daemon=True) for _ in range(3)]
        for consumer in consumers:
            consumer.start()
    """,
    "augment at work": """
        busy = threading.Event()
        def augment(batch, rng):
            busy.set()
            return batch + rng.random(batch.shape)
        rows = itertools.repeat(np.zeros(64))
        batches = iter(pyecho.EchoLoader(rows, 2, batch_size=4, augment=augment))
        busy.wait()
    """,
    "augment blocked for ever": """
        inside = threading.Event()
        def augment(batch, rng):
            inside.set()
            NEVER.wait()
        uses = iter(pyecho.EchoLoader(itertools.count(), 2, augment=augment))
        inside.wait()
    """,
    "producers blocked in put and reserve": """
        buffer = pyecho.EchoBuffer(pyecho.Field(64, float), batch_size=4)
        def produce():
            while True:
                buffer.put(np.zeros(64))
        def reserve():
            while True:
                with buffer.reserve() as view:
                    view[...] = 1
        for target in (produce, produce, reserve):
            threading.Thread(target=target, daemon=True).start()
        while buffer.stats().fresh < 4:
            pass
    """,
    "an open reservation": """
        buffer = pyecho.EchoBuffer(pyecho.Field(64, float), batch_size=4)
        reservation = buffer.reserve()
        view = reservation.views
    """,
    "exit from inside the loop": """
        for batch in pyecho.EchoLoader(itertools.repeat(np.zeros(64)), 2, batch_size=4):
            sys.exit(0)
    """,
    "exit with a failed source whose error nobody fetched": """
        def source():
            yield 1
            raise RuntimeError("nobody asks")
        loader = pyecho.EchoLoader(source(), 2)
        uses = iter(loader)
    """,
    "a cycle that holds the iterator": """
        class Node:
            pass
        node = Node()
        node.self, node.batches = node, iter(pyecho.EchoLoader(stuck(50), 2, batch_size=4))
        next(node.batches)
        del node
    """,
    "nested loaders in the middle": """
        inner = pyecho.EchoLoader(itertools.count(), 2, shuffle_buffer=5)
        outer = pyecho.EchoLoader(inner, 2, batch_size=4, shuffle_buffer=5)
        batches = iter(outer)
        next(batches)
    """,
    "a data loader with workers as the source": """
        import torch
        source = torch.utils.data.DataLoader(range(10_000), batch_size=4, num_workers=1)
        uses = iter(pyecho.EchoLoader(source, 2))
        next(uses)
    """,
    "a progress bar": """
        sys.stderr = open(os.devnull, "w")
        batches = iter(pyecho.EchoLoader(range(1000), 2, batch_size=4, progress=True))
        next(batches)
        sys.stderr.close()
        sys.stderr = sys.__stderr__
    """,
    "an atexit handler that still consumes": """
        import atexit
        batches = iter(pyecho.EchoLoader(itertools.count(), 2, batch_size=4))
        @atexit.register
        def last():
            next(batches)
    """,
    "a finalizer that still uses the loader": """
        loader = pyecho.EchoLoader(itertools.count(), 2, batch_size=4)
        batches = iter(loader)
        class Late:
            def __del__(self):
                loader.stats()
                loader.close()
        late = Late()
    """,
}


@pytest.mark.parametrize("state", STATES)
def test_exit_in_the_middle_is_clean(state):
    run(STATES[state])


@pytest.mark.stress
def test_two_hundred_exits_are_clean():
    with ThreadPoolExecutor(max_workers=2 * (os.cpu_count() or 1)) as executor:
        list(executor.map(run, [script for script in STATES.values() for _ in range(10)]))


def test_an_unhandled_exception_in_the_loop_is_the_only_thing_on_stderr():
    script = """
        for batch in pyecho.EchoLoader(itertools.repeat(np.zeros(64)), 2, batch_size=4):
            raise ValueError("mine")
    """
    with started(script) as process:
        _, problems = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == 1
    assert problems.strip().endswith("ValueError: mine")
    assert problems.count("Traceback") == 1
