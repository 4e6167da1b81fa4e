"""The options of a loader as keyword arguments: names, types, and their place in help()."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

import numpy as np

from pyecho.config import Config, Workers
from pyecho.items.programs import Ops
from pyecho.items.ragged import Fields

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext


class Options(TypedDict, total=False):
    """The names and types of a loader's options, which `EchoLoader` describes."""

    batch_size: int | None
    unbatch: bool | Literal["lists"]
    drop_last: bool
    pad_last: bool
    collate_fn: Callable[[list[Any]], Any] | None
    fields: Fields
    shuffle_buffer: int | None
    unique_in_batch: bool
    seed: int
    epochs: int | None
    steps_per_epoch: int | None
    shards: int | None
    ops: Ops
    augment_example: Callable[[Any, np.random.Generator], Any] | None
    augment: Callable[[Any, np.random.Generator], Any] | None
    augment_workers: int
    shuffle: bool
    sampler: Iterable[Any] | None
    num_workers: int
    workers: Workers
    worker_init_fn: Callable[[int], object] | None
    multiprocessing_context: str | BaseContext | None
    prefetch: int
    threads: int | None
    pin_memory: bool | None
    max_bytes: int | None
    with_info: bool
    copy: bool
    progress: bool


Init = TypeVar("Init", bound=Callable[..., None])


def with_options(init: Init) -> Init:
    """Have help() and completion show every option with its default in the place of `**options`."""
    own, options = inspect.signature(init), inspect.signature(Config).parameters
    shown = [each for each in own.parameters.values() if each.kind is not each.VAR_KEYWORD]
    shown += [options[name] for name in Options.__annotations__]
    init.__signature__ = own.replace(parameters=shown)  # type: ignore[attr-defined]
    return init
