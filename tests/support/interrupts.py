"""Ctrl-C while the main thread is inside a call."""

import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest


def interrupted(call: Callable[[], Any], inside: threading.Event) -> None:
    """Make the call in the main thread, where Ctrl-C ends it soon after `inside` is set."""
    main = threading.main_thread()

    def interrupt() -> None:
        assert inside.wait(60)
        time.sleep(0.1)
        signal.pthread_kill(main.ident, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            call()
    finally:
        thread.join()
