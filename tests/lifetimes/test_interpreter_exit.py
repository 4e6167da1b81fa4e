"""Python exits cleanly in the middle of anything: its exit code, nothing on stderr, no hang.

Faults of other libraries: `atexit` too late for Python threads, the GIL taken during finalization,
aborts, worker processes that are left behind.
"""

import sys

import pytest
from exit_matrix import EXITS, SOURCES, pairwise, problems_of
from scripts import LIMIT_SECONDS, run, started

FREE_THREADED = not getattr(sys, "_is_gil_enabled", lambda: True)()


@pytest.mark.parametrize("source", SOURCES)
def test_exits_are_clean_for_every_pair_of_values(source):
    assert problems_of([exit for exit in pairwise(EXITS) if exit.source == source]) == []


@pytest.mark.stress
@pytest.mark.parametrize("source", SOURCES)
def test_exits_are_clean(source):
    assert problems_of([exit for exit in EXITS if exit.source == source]) == []


OTHERS = {
    "augment blocks for ever": """
        inside = threading.Event()
        def augment(batch, rng):
            if batch == 1:
                inside.set()
                NEVER.wait()
            return batch
        uses = iter(pyecho.EchoLoader(itertools.count(), 2, augment=augment))
        next(uses)
        inside.wait()
    """,
    "producers are blocked in put and reserve": """
        buffer = pyecho.EchoBuffer(pyecho.Field(64, float), batch_size=4)
        def put():
            while True:
                buffer.put(np.zeros(64))
        def reserve():
            while True:
                with buffer.reserve() as view:
                    view[...] = 1
        for target in (put, put, reserve):
            threading.Thread(target=target, daemon=True).start()
        while buffer.stats().read < 4:
            pass
    """,
    "a reservation is open": """
        buffer = pyecho.EchoBuffer(pyecho.Field(64, float), batch_size=4)
        reservation = buffer.reserve()
        view = reservation.views
    """,
    "a source has failed, and its error was not fetched": """
        def source():
            yield 1
            raise RuntimeError("nobody asks")
        uses = iter(pyecho.EchoLoader(source(), 3))
        next(uses)
    """,
    "a progress bar is shown": """
        sys.stderr = open(os.devnull, "w")
        batches = iter(pyecho.EchoLoader(range(1000), 2, batch_size=4, progress=True))
        next(batches)
        sys.stderr.close()
        sys.stderr = sys.__stderr__
    """,
    "daemon threads make loaders": """
        begun = threading.Event()
        def make():
            while True:
                next(iter(pyecho.EchoLoader(itertools.count(), 2, batch_size=4)))
                begun.set()
        for _ in range(3):
            threading.Thread(target=make, daemon=True).start()
        begun.wait()
    """,
    "an exit handler begins an iteration, and pyecho's own has been called": """
        import atexit
        @atexit.register
        def begin():
            assert next(iter(pyecho.EchoLoader(itertools.count(), 2, threads=0))) == 0
            try:
                next(iter(pyecho.EchoLoader(itertools.count(), 2)))
            except pyecho.Closed as error:
                assert "exiting" in str(error)
            else:
                raise AssertionError("it has started a thread")
        next(iter(pyecho.EchoLoader(itertools.count(), 2)))
    """,
}


@pytest.mark.parametrize("state", OTHERS)
def test_exit_is_clean_while(state):
    run(OTHERS[state])


def test_exit_is_clean_while_a_finalizer_still_uses_the_loader():
    """Python 3.13t clears all modules before it finalizes objects that their functions can reach.

    So the finalizer finds None for each global, its own and those of pyecho. Python reports that,
    but the process must neither crash nor hang.
    """
    run(
        """
        loader = pyecho.EchoLoader(itertools.count(), 2, batch_size=4)
        batches = iter(loader)
        next(batches)
        class Late:
            def __del__(self):
                loader.stats()
                loader.close()
        late = Late()
        """,
        errors=None if FREE_THREADED else "",
    )


def test_daemon_thread_of_the_programs_may_be_inside_pytorch():
    """Python before 3.14 ends it there, in a C++ destructor."""
    run("""
        import torch
        def work():
            while True:
                torch.zeros(3) + 1
                begun.set()
        begun = threading.Event()
        next(iter(pyecho.EchoLoader(itertools.count(), 2)))
        for _ in range(3):
            threading.Thread(target=work, daemon=True).start()
        begun.wait()
    """)


def test_threads_of_a_process_group_end_as_they_do_without_pyecho():
    """PyTorch aborts where Python ends one of them; parked, it kept a mutex that the exit needs."""
    pytest.importorskip("torch")
    script = """
        import torch, torch.distributed as dist
        next(iter(pyecho.EchoLoader(itertools.count(), 2)))
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        ones = torch.ones(1000)
        sys.setswitchinterval(1000)
        for _ in range(200):
            dist.all_gather([torch.empty(1000)], ones + 1, async_op=True)
    """
    with started(script) as process:
        _, problems = process.communicate(timeout=LIMIT_SECONDS)
    assert problems == "" or "terminate called" in problems


def test_exit_waits_for_a_source_that_takes_long_to_end():
    output = run("""
        class Source:
            def __iter__(self):
                try:
                    yield from itertools.count()
                finally:
                    time.sleep(pyecho.run.threads.EXIT_SECONDS + 1)
                    print("ended")
        batches = iter(pyecho.EchoLoader(Source(), 2, batch_size=4))
        next(batches)
    """)
    assert output == "ended\n"


def test_threads_end_that_an_exit_handler_has_started():
    """Such a handler moves pyecho's own to a place that Python has passed already.

    Without a GIL the thread that made an object destroys it: the main thread has begun the source.
    """
    output = run("""
        import atexit
        class Source:
            def __iter__(self):
                try:
                    yield from itertools.count()
                finally:
                    print(threading.current_thread().name)
        batches = iter(pyecho.EchoLoader(Source(), 2, batch_size=4))
        atexit.register(lambda: next(batches))
    """)
    assert output in ["pyecho-feeder\n"] + ["MainThread\n"] * FREE_THREADED
