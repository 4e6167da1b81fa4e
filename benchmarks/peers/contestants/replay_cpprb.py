"""cpprb: a replay buffer that is added to and sampled from; uses are not exact.

https://ymd_h.gitlab.io/cpprb/features/flexible_environment/: any NumPy type; several rows may be
added with one call. A sample is drawn with replacement.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import cpprb
import numpy as np

from peers.workload import Source, Work


@contextlib.contextmanager
def examples(work: Work, source: Source) -> Iterator[Iterator[Any]]:
    """Add a batch's share of fresh rows, then sample a batch."""
    buffer = cpprb.ReplayBuffer(work.pool, env_dict={"x": {"shape": work.shape, "dtype": np.uint8}})

    def generate() -> Iterator[Any]:
        for chunk in source.chunks(work.batch // work.factor):
            buffer.add(x=chunk)
            yield buffer.sample(work.batch)["x"]

    yield generate()
