"""The names and types of a loader's options, for type checkers, help() and completion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypedDict

import numpy as np

Memory = Literal["auto", "pageable", "pinned"]
"""``"pinned"`` memory can be read by a CUDA device while the host goes on, and must be had;
``"auto"`` is pinned if a device is in use and the system allows it."""


class Options(TypedDict, total=False):
    """The options of a loader besides its source and its factor; `EchoLoader` says what they do."""

    batch_size: int | None
    unbatch: bool
    shuffle_buffer: int | None
    unique_in_batch: bool
    drop_last: bool
    pad_last: bool
    seed: int
    epochs: int | None
    steps_per_epoch: int | None
    shards: int | None
    prefetch: int
    threads: int | None
    collate_fn: Callable[[list[Any]], Any] | None
    augment: Callable[[Any, np.random.Generator], Any] | None
    augment_workers: int
    memory: Memory
    max_bytes: int | None
    with_info: bool
    copy: bool
    progress: bool
