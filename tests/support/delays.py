"""Delays that upset the timing of a pipeline. Nothing waits *for* them: results must not change."""

import random
import time
from collections.abc import Iterable, Iterator
from typing import Any


def dawdling(items: Iterable[Any], seed: int, most_seconds: float = 0.002) -> Iterator[Any]:
    """Yield the items, now and then late."""
    rng = random.Random(seed)
    for item in items:
        if rng.random() < 0.3:
            time.sleep(rng.random() * most_seconds)
        yield item
