"""Segments so short that a run of a test has many joints."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyecho.config import Config

_changing = threading.Lock()
_before: list[int] = []  # of each that is within; ranks that are threads make loaders together


@contextmanager
def segments_of(uses: int | None) -> Iterator[None]:
    """Have loaders and buffers that are made within have segments of so many uses of a stream."""
    defaults = Config.__init__.__kwdefaults__
    with _changing:
        _before.append(defaults["segment_uses"])
        defaults["segment_uses"] = uses or 0
    try:
        yield
    finally:
        with _changing:
            before = _before.pop()
            if not _before:
                defaults["segment_uses"] = before
