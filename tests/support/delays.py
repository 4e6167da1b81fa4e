"""Delays that disturb the timing of a pipeline. Results must not depend on them."""

import random
import time
from collections.abc import Iterable, Iterator
from typing import Any


def dawdling(items: Iterable[Any], seed: int, most_seconds: float = 0.002) -> Iterator[Any]:
    """Yield the items, some of them late."""
    rng = random.Random(seed)
    for item in items:
        if rng.random() < 0.3:
            time.sleep(rng.random() * most_seconds)
        yield item
