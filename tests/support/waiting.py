"""Waits for what threads do."""

import gc
import threading
import time

LIMIT_SECONDS = 60


def wait_until(condition, seconds=10):
    """Wait until a condition holds; return whether it does in the end."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(1e-3)
    return condition()


def join_threads():
    """Return when no thread of pyecho's is left."""
    gc.collect()
    for thread in threading.enumerate():
        if thread.name.startswith("pyecho"):
            # One that is just being started is listed, and cannot be joined yet.
            wait_until(lambda each=thread: each.is_alive() or each not in threading.enumerate())
            thread.join(LIMIT_SECONDS)
            assert not thread.is_alive(), thread
    gc.collect()
