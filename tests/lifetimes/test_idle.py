"""Waiting burns no CPU: neither thread of Python's nor native ones, on either side of a stage.

This measures CPU time, not time: a process that is blocked for a while must not have used its core.
"""

import pytest
from scripts import run

INTERVAL_SECONDS = 1.0

BLOCKED = {
    "a consumer that waits for its source": """
        batches = iter(pyecho.EchoLoader(stuck(2), 1, batch_size=4, threads=4))
        blocked = threading.Thread(target=attempt, args=(lambda: next(batches),), daemon=True)
    """,
    "a feeder and workers that wait for their consumer": """
        rows = itertools.repeat(np.zeros(64))
        batches = iter(pyecho.EchoLoader(rows, 2, batch_size=4, shuffle_buffer=50, threads=4))
        next(batches)
        blocked = None
    """,
    "augmentation that waits for its consumer": """
        rows = itertools.repeat(np.zeros(64))
        batches = iter(pyecho.EchoLoader(rows, 2, batch_size=4, augment=lambda batch, rng: batch))
        next(batches)
        blocked = None
    """,
    "a put on a full buffer": """
        buffer = pyecho.EchoBuffer(pyecho.Field(64, float), batch_size=4, threads=4)
        def produce():
            while True:
                buffer.put(np.zeros(64))
        blocked = threading.Thread(target=attempt, args=(produce,), daemon=True)
    """,
    "workers that wait for a lease": """
        with contextlib.suppress(pyecho.ConfigError, pyecho.BufferExhausted):
            batches = iter(pyecho.EchoLoader(itertools.repeat(np.zeros(64)), 2, batch_size=4,
                                             threads=4, max_bytes=20 * 4096))
            kept = list(batches)
        blocked = None
    """,
}


@pytest.mark.parametrize("state", BLOCKED)
def test_idle_is(state):
    output = run(
        """
        import warnings
        warnings.simplefilter("ignore", ResourceWarning)

        def attempt(function):
            with contextlib.suppress(pyecho.Closed):
                function()
    """
        + BLOCKED[state]
        + f"""
        if blocked is not None:
            blocked.start()
        # Work under way comes to rest, on a busy machine late. Then a stretch uses nothing.
        for _ in range(20):
            before, began = time.process_time(), time.perf_counter()
            time.sleep({INTERVAL_SECONDS})
            share = (time.process_time() - before) / (time.perf_counter() - began)
            if share < 0.01:
                break
        print(share)
    """
    )
    assert float(output) < 0.01
