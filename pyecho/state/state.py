"""Saved states of loaders and buffers: what they hold.

A state holds what the consumer has taken (whole iterations, and batches of the next one), the
lengths of the passes that were read, and the items that it has not had to their last use. The plan
is a function of these numbers and the options, so loading a state replays it (csrc/core/plan), and
there is no index in a state that could point anywhere. `pyecho.state.check` checks and reads it.

    state = {
        "format", "version", "kind",   # whose state it is
        "rank", "ranks": int,          # which of how many
        "options": {...},              # those that decide the output
        "epoch": int,                  # the running epoch, else the next one
        "flow": None | {               # the passes that flow into each other, once one has begun
            "epoch", "items",          # the first one; items of a pass, if known beforehand
            "iteration_uses", "total_uses",        # of several ranks, see `pyecho.run.ranks`
            "last",                    # batches of all iterations, once the ranks have agreed
            "lengths",                 # of the sources of all ranks, if they are known
            "passes", "open_items", "ended",       # [[passes, items of each], ...], then items
            "iterations", "batches", "delivered",  # taken from the stage that reads
            "decisions",               # of an adaptive factor, those ahead of the consumer included
            "knots",                   # of several ranks: [[batch, events], ...] to come
            "links": {name: [iterations, delivered, [[kind, ...], ...]]},  # and behind it; ahead
            "numbers", "columns",      # the items: a column of bytes or references for each leaf
            "checksum", "leaves",      # of example echoing; batch echoing has one column, of items
            "held", "held_row",        # read and not put, where the source has a state
        },
        "source": None | {"iterator": bool, "state": ...},
        "taken": int,                  # a buffer's: examples put so far
        "digest": str,                 # of all the rest; columns of bytes by their checksum
    }
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, islice, repeat
from typing import Any

import numpy as np

from pyecho import _core
from pyecho._core import EchoError
from pyecho.config import Config
from pyecho.items.spec import Field, is_tensor

VERSION = 1

MOST_PASSES = 2**20

BATCH, END, LAST_END = 0, 1, 2
"""Kinds of what a link has made ahead: [BATCH, batch, *info], the end of an iteration, the last."""


def options_of(config: Config) -> dict[str, Any]:
    """Return the options that decide the output."""
    names = "batch_size unbatch unique_in_batch drop_last pad_last seed epochs steps_per_epoch"
    options = {name: getattr(config, name) for name in [*names.split(), "shards"]}
    options |= {"factor": config.most_uses, "min_uses": config.min_uses, "max_age": config.max_age}
    return options | {"shuffle_buffer" if config.loader else "capacity": config.capacity}


def leaves_of_spec(fields: list[Field]) -> list[str]:
    """Describe the leaves of an example."""
    return ["object" if field.by_reference else f"{field.dtype} {field.shape}" for field in fields]


def whole_state(
    kind: str,
    config: Config,
    epoch: int,
    flow: dict[str, Any] | None,
    source: Any,
    **more: int,
) -> dict[str, Any]:
    """Return the whole state, with its digest.

    Raises `EchoError` if it has none, as nothing with an item that contains itself has.
    """
    state: dict[str, Any] = {
        "format": "pyecho",
        "version": VERSION,
        "kind": kind,
        "rank": config.rank,
        "ranks": config.ranks,
        "options": options_of(config),
        "epoch": epoch,
        "flow": flow,
        "source": source,
        **more,
    }
    try:
        return state | {"digest": digest(state)}
    except RecursionError:
        raise EchoError(
            "no state can be taken: an item, or the state of the source, contains itself, or is a "
            "nest too deep"
        ) from None


def taken_only(iterations: int, delivered: int) -> dict[str, Any]:
    """Return the position in a flow without payload: what the consumer has taken, nothing ahead."""
    return {
        "links": {},
        "iterations": iterations,
        "batches": delivered,
        "delivered": delivered,
    }


def flow_after(
    batches: int, *, config: Config, items: int, epoch: int, iterations: int
) -> dict[str, Any]:
    """Return a flow without payload whose consumer has taken these iterations, then these batches.

    It knows of more input than that takes; the plan is fed only what it needs.
    """
    passes = MOST_PASSES if config.steps_per_epoch else max(1, (config.epochs or 1) - epoch)
    return {
        "epoch": epoch,
        "items": items,
        "iteration_uses": 0,
        "total_uses": 0,
        "last": None,
        "lengths": None,
        "passes": [[passes, items]],
        "open_items": 0,
        "ended": config.steps_per_epoch is None,
        "decisions": np.empty(0, np.int32),
        "knots": [],
        **taken_only(iterations, batches),
    }


def with_ends(items: list[Any], queue: dict[str, Any], iterations: int) -> list[Any]:
    """Put the ends of passes between the items that a stage holds, each used once.

    `queue`: the state of the stage (see `_core.Stage._state`). `iterations`: taken from it.
    """
    passes = queue["passes"]
    ahead = sum(count for count, _ in passes) - iterations
    last_first = chain.from_iterable(repeat(length, count) for count, length in reversed(passes))
    place, end = len(items) - queue["open_items"], LAST_END if queue["ended"] else END
    for length in islice(last_first, ahead):
        items.insert(place, [end])
        place, end = place - length, END
    return items


# ---------------------------------------------------------------- digest


def digest(state: Mapping[str, Any]) -> str:
    """Return a number of a state that changes with it, as text.

    Objects that are neither numbers, texts, arrays, tensors nor nests of them count by type only.
    """
    import hashlib  # slow to import

    found = hashlib.blake2b(digest_size=16)
    rest = {name: state[name] for name in state if name != "digest"}
    flow = rest.get("flow")
    if isinstance(flow, dict) and isinstance(flow.get("columns"), list):
        columns = [each for each in flow["columns"] if isinstance(each, list)]
        rest["flow"] = {**flow, "columns": columns}  # the others have a checksum
    for part in _digested(rest):
        found.update(part)
    return found.hexdigest()


def _digested(value: Any) -> Iterator[bytes]:
    if isinstance(value, np.ndarray | np.generic) and value.ndim == 0:
        value = value.item()
    if isinstance(value, dict):
        yield b"{%d" % len(value)
        texts = [(_text_of_key(key), key) for key in value]
        known = [(text, key) for text, key in texts if text is not None]
        for known_text, key in sorted(known, key=lambda each: each[0]):
            yield known_text.encode("utf-8", "surrogatepass")
            yield from _digested(value[key])
        for text, key in texts:  # in their order, as nothing else tells them apart
            if text is None:
                yield f"<{type(key).__qualname__}>".encode()
                yield from _digested(value[key])
    elif isinstance(value, list | tuple):
        yield b"[%d" % len(value)
        for each in value:
            yield from _digested(each)
    elif isinstance(value, bytes | bytearray):
        yield b"b%d:" % len(value) + value
    elif value is None or isinstance(value, bool | int | float | complex | str):
        yield f"{value!r};".encode("utf-8", "surrogatepass")
    else:
        array = _bytes_of(value)
        if array is None:
            yield f"<{type(value).__qualname__}>".encode()
        else:
            dtype = str(value.dtype).removeprefix("torch.")  # a file may make tensors of arrays
            yield f"{dtype}{tuple(value.shape)}{_core.checksum(array)};".encode()


def _text_of_key(key: Any) -> str | None:
    """Return the value of a key of a dict, None if that cannot be told."""
    if isinstance(key, tuple):
        parts = [_text_of_key(each) for each in key]
        return None if None in parts else f"({', '.join(map(str, parts))})"
    kinds: tuple[Any, ...] = (str, bool, int, float, bytes, type(None))
    for kind in kinds:
        if isinstance(key, kind):
            return str(kind.__repr__(key))  # not that of a class derived from it
    return None


def _bytes_of(value: Any) -> Any:
    """Return an array or tensor as a C-contiguous array; None if it is neither, or is special."""
    try:
        if is_tensor(value):
            import torch

            if value.numel() == 0:  # which may have strides that no view can have
                return np.empty(0, np.uint8)
            value = value.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy()
    except (RuntimeError, NotImplementedError, TypeError):
        return None
    if not isinstance(value, np.ndarray) or value.dtype.hasobject:
        return None
    return np.ascontiguousarray(value)
