"""Saved states of loaders and buffers: what they hold, and their checks.

A state holds what the consumer has taken (whole iterations, and batches of the next one), the
lengths of the passes that were read, and the items that it has not had to their last use. The plan
is a function of these numbers and the options, so loading a state replays it (`_core.Replay`), and
there is no index in a state that could point anywhere.

    state = {
        "format", "version", "kind",   # whose state it is
        "options": {...},              # those that decide the output
        "epoch": int,                  # the running epoch, else the next one
        "flow": None | {               # the passes that flow into each other, once one has begun
            "epoch", "items",          # the first one; items of a pass, if known beforehand
            "passes", "open_items", "ended",       # [[passes, items of each], ...], then items
            "iterations", "batches", "delivered",  # taken from the stage that reads
            "position": [iterations, delivered],   # and by the consumer
            "numbers", "rows", "references", "checksum", "leaves",  # items of example echoing
            "numbers", "items_held",                                # items of batch echoing
            "made": [[kind, ...], ...],                 # what augment has made ahead
        },
        "source": None | {"iterator": bool, "state": ...},
        "taken": int,                  # a buffer's: examples put so far
        "digest": str,                 # of all the rest; "rows" by their checksum
    }
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pyecho import _core
from pyecho._core import CheckpointError
from pyecho.config import Config
from pyecho.spec import fields_of, is_tensor

VERSION = 1
MOST = 2**62  # of anything that is counted
MOST_EMPTY_PASSES = 2**20

BATCH, END, LAST_END = 0, 1, 2
"""Kinds of entries of "made": [BATCH, what augment made], the end of an iteration, the last one."""


def options_of(config: Config) -> dict[str, Any]:
    """Return the options that decide the output."""
    names = "factor batch_size unbatch unique_in_batch drop_last seed epochs steps_per_epoch"
    options = {name: getattr(config, name) for name in names.split()}
    return options | {"shuffle_buffer" if config.loader else "capacity": config.capacity}


def leaves_of_spec(spec: Any) -> list[str]:
    """Describe the leaves of an example, in the order of their bytes in a saved row."""
    return [
        "object" if field.by_reference else f"{field.dtype} {field.shape}"
        for field in fields_of(spec)
    ]


class Passes:
    """The lengths of passes in runs of equal ones, and then items of one that has not ended."""

    def __init__(self, runs: list[tuple[int, int]], open_items: int) -> None:
        self.runs = runs
        self.count = sum(passes for passes, _ in runs)
        self.items = sum(passes * items for passes, items in runs) + open_items

    def begin_of(self, number: int) -> int:
        """Return how many items there are before a pass; passes count from 0."""
        before = 0
        for passes, items in self.runs:
            before += min(number, passes) * items
            number -= min(number, passes)
        return before

    def locate(self, item: int) -> tuple[int, int]:
        """Return the pass of an item, and its number in that pass."""
        number = 0
        for passes, items in self.runs:
            if item < passes * items:
                return number + item // items, item % items
            item -= passes * items
            number += passes
        return number, item


# ---------------------------------------------------------------- making a state


def finished_state(
    kind: str,
    config: Config,
    epoch: int,
    flow: dict[str, Any] | None,
    source: Any,
    **more: int,
) -> dict[str, Any]:
    """Return the whole state, with its digest."""
    state: dict[str, Any] = {
        "format": "pyecho",
        "version": VERSION,
        "kind": kind,
        "options": options_of(config),
        "epoch": epoch,
        "flow": flow,
        "source": source,
        **more,
    }
    return state | {"digest": digest(state)}


def with_arrays(flow: dict[str, Any], saved: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a flow whose own arrays are ``saved(array)``; what is the caller's stays."""

    def as_saved(array: Any) -> Any:
        return saved(array) if isinstance(array, np.ndarray) else array

    names = [name for name in ("numbers", "rows") if name in flow]
    changed: dict[str, Any] = {name: as_saved(flow[name]) for name in names}
    if "made" in flow:
        changed["made"] = [
            [kind, *([batch, *map(as_saved, info)] for batch, *info in made)]
            for kind, *made in flow["made"]
        ]
    return flow | changed


def made_ahead(queue: dict[str, Any], iterations: int) -> list[list[Any]]:
    """Return what a queue behind a link holds (see `_core.Stage._state`), in order.

    `iterations`: so many have been taken since it began.
    """
    passes = Passes(queue["passes"], queue["open_items"])
    items, made = iter(queue["items"]), []
    at = passes.items - len(queue["items"])
    for number in range(iterations, passes.count):
        end = passes.begin_of(number + 1)
        made += [[BATCH, _plain(next(items))] for _ in range(end - at)]
        made.append([LAST_END if queue["ended"] and number + 1 == passes.count else END])
        at = end
    return made + [[BATCH, _plain(item)] for item in items]


def _plain(emission: Any) -> list[Any]:
    """Return a batch, and its info without the type of it, which is pyecho's own."""
    if isinstance(emission, tuple) and len(emission) == 2 and hasattr(emission[1], "source_index"):
        return [emission[0], emission[1].source_index, emission[1].use]
    return [emission]


# ---------------------------------------------------------------- digest


def digest(state: Mapping[str, Any]) -> str:
    """Return a number of a state that changes with it, as text.

    Objects that are neither numbers, texts, arrays, tensors nor nests of them count by type only.
    """
    found = hashlib.blake2b(digest_size=16)
    for part in _digested({name: state[name] for name in state if name != "digest"}):
        found.update(part)
    return found.hexdigest()


def _digested(value: Any) -> Iterator[bytes]:
    if isinstance(value, np.ndarray | np.generic) and value.ndim == 0:
        value = value.item()
    if isinstance(value, dict):
        yield b"{%d" % len(value)
        for key in sorted(value, key=repr):
            yield repr(key).encode()
            if key != "rows":
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


def _bytes_of(value: Any) -> Any:
    """Return an array or tensor as a C-contiguous array; None if it is neither, or is special."""
    try:
        if is_tensor(value):
            import torch

            value = value.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy()
    except (RuntimeError, NotImplementedError, TypeError):
        return None
    if not isinstance(value, np.ndarray) or value.dtype.hasobject:
        return None
    return np.ascontiguousarray(value)


# ---------------------------------------------------------------- reading a state


@dataclass(frozen=True, kw_only=True)
class Flow:
    """The checked numbers and items of a flow of passes."""

    epoch: int
    items: int | None
    passes: Passes
    open_items: int
    ended: bool
    iterations: int
    batches: int
    delivered: int
    position: tuple[int, int]
    numbers: Any = None  # ascending
    order: Any = None  # where each of them is in the state
    rows: Any = None
    references: Any = None
    leaves: Any = None
    objects: Any = None
    made: Any = None

    @property
    def payload(self) -> bool:
        """True if the state holds the items."""
        return self.numbers is not None


@dataclass(frozen=True)
class SavedState:
    """A state that belongs to these options and is whole; else `CheckpointError`."""

    raw: dict[str, Any]
    epoch: int
    flow: Flow | None
    source: Any

    @classmethod
    def read(cls, state: Any, kind: str, config: Config) -> SavedState:
        """Check a state. Uses nothing of it, calls nothing in it."""
        try:
            return cls._read(state, kind, config)
        except CheckpointError:
            raise
        except (LookupError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
            raise CheckpointError(f"this is no whole state of pyecho: {error!r}") from error

    @classmethod
    def _read(cls, state: Any, kind: str, config: Config) -> SavedState:
        if not isinstance(state, dict) or not _is_text(state.get("format"), "pyecho"):
            raise CheckpointError("this is no state of pyecho: it is a dict that state_dict() made")
        if _count(state["version"]) != VERSION:
            raise CheckpointError(
                f"the state has version {state['version']}, and this pyecho reads {VERSION}"
            )
        if not _is_text(state["kind"], kind):
            raise CheckpointError(f"the state is that of a {state['kind']}, not of a {kind}")
        _check_options(state["options"], config)
        if not _is_text(state["digest"], digest(state)):
            raise CheckpointError("the state is damaged: its digest is that of another one")
        flow = state["flow"]
        return cls(
            raw=state,
            epoch=_count(state["epoch"], 2**64 - 1),
            flow=None if flow is None else _flow_of(flow, config),
            source=_source_of(state["source"]),
        )


def _check_options(saved: Any, config: Config) -> None:
    options = options_of(config)
    if not isinstance(saved, dict) or set(map(type, saved)) != {str}:
        raise CheckpointError("the state lacks the options of its loader")
    for name in sorted(set(options) | set(saved)):
        known = name in options and isinstance(saved.get(name), int | float | np.number | None)
        if not known or name not in saved or saved[name] != options[name]:
            raise CheckpointError(
                f"the state was taken with {name}={saved.get(name)!r}, and here it is "
                f"{options.get(name)!r}; all options that decide the output must be the same"
            )


def _source_of(source: Any) -> Any:
    if source is not None and not (
        isinstance(source, dict) and set(source) == {"iterator", "state"}
    ):
        raise CheckpointError("the state of the source is damaged")
    return source


def _flow_of(flow: Any, config: Config) -> Flow:
    runs = [(_count(passes), _count(items)) for passes, items in _list_of(list, flow["passes"])]
    if any(passes < 1 or (not items and passes > MOST_EMPTY_PASSES) for passes, items in runs):
        raise CheckpointError("the state tells of passes that cannot be")
    items = None if flow["items"] is None else _count(flow["items"])
    [ended], open_items = _list_of(bool, [flow["ended"]]), _count(flow["open_items"])
    passes = Passes(runs, open_items)
    most_passes = MOST if config.steps_per_epoch is not None else max(1, config.epochs or 1)
    if passes.items > MOST or passes.count > most_passes or (ended and open_items > 0):
        raise CheckpointError("the state tells of passes that cannot be")
    iterations, delivered = _list_of(int, flow["position"])
    found = Flow(
        epoch=_count(flow["epoch"], 2**64 - 1),
        items=items,
        passes=passes,
        open_items=open_items,
        ended=ended,
        iterations=_count(flow["iterations"]),
        batches=_count(flow["batches"]),
        delivered=_count(flow["delivered"]),
        position=(_count(iterations), _count(delivered)),
        made=[_entry_of(entry) for entry in _list_of(list, flow.get("made", []))],
    )
    if "numbers" not in flow:
        return found
    numbers = _array_of(flow["numbers"], np.int64, 1)
    order = np.argsort(numbers)
    ascending = numbers[order]
    if len(numbers) and not (
        ascending[0] >= 0 and ascending[-1] < passes.items and np.all(np.diff(ascending) > 0)
    ):
        raise CheckpointError("the state holds items that cannot be in it")
    found = replace(found, numbers=ascending, order=order)
    if config.batch_size is None:
        objects = flow["items_held"]
        if not isinstance(objects, list) or len(objects) != len(numbers):
            raise CheckpointError("the state lacks some of its items")
        return replace(found, objects=[objects[place] for place in order])
    rows = _array_of(flow["rows"], np.uint8, 2)
    references = _list_of(list, flow["references"])
    if len(rows) != len(numbers) or any(len(leaf) != len(numbers) for leaf in references):
        raise CheckpointError("the state lacks some of its items")
    if _core.checksum_of_rows(rows, numbers) != _count(flow["checksum"], 2**64 - 1):
        raise CheckpointError("the items of the state are damaged")
    return replace(found, rows=rows, references=references, leaves=_list_of(str, flow["leaves"]))


def _entry_of(entry: Any) -> list[Any]:
    kind, *batch = entry
    if _count(kind, LAST_END) != BATCH:
        return [kind]
    [batch] = _list_of(list, batch)
    if len(batch) not in (1, 3):
        raise CheckpointError("the state holds batches that cannot be in it")
    columns = zip(batch[1:], (np.int64, np.int32), strict=False)
    return [BATCH, [batch[0], *(_array_of(column, dtype, 1) for column, dtype in columns)]]


def _is_text(value: Any, text: str) -> bool:
    return isinstance(value, str) and value == text  # never calls what a state holds


def _list_of(kind: type, value: Any) -> list[Any]:
    if not isinstance(value, list) or not all(isinstance(each, kind) for each in value):
        raise CheckpointError(f"the state has {type(value).__name__} in the place of a list")
    return value


def _count(value: Any, most: int = MOST) -> int:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise CheckpointError(f"the state has {value!r} in the place of a number")
    if not 0 <= value <= most:
        raise CheckpointError(f"the state has the number {value}, which cannot be")
    return int(value)


def _array_of(value: Any, dtype: Any, axes: int) -> Any:
    if is_tensor(value):
        value = value.detach().cpu().numpy()
    if not isinstance(value, np.ndarray) or value.dtype != dtype or value.ndim != axes:
        raise CheckpointError("the state lacks an array of items, or it is of another kind")
    return np.ascontiguousarray(value)


# ---------------------------------------------------------------- going on


def replay_of(flow: Flow, config: Config) -> Any:
    """Return the plan at the position of a flow; `CheckpointError` if there is no such one."""
    counted = config.drop_last and not flow.payload
    replay = _core.Replay(
        config,
        room=1 + (len(flow.numbers) if flow.payload else 0),
        epoch=flow.epoch,
        items=flow.items,
        passes=flow.passes.runs,
        open_items=flow.open_items,
        ended=flow.ended,
        feed_all=flow.payload,
        iterations=flow.iterations,
        batches=flow.batches,
        min_rows=config.batch_size or 1 if counted else 1,
    )
    if not replay.run() or (flow.payload and not np.array_equal(replay.numbers, flow.numbers)):
        raise CheckpointError("the state contradicts itself: its items are not those of its place")
    return replay


def check_leaves(stage: Any, flow: Flow, leaves: list[str]) -> None:
    """Raise `CheckpointError` if the items are not such as the stage echoes."""
    if leaves != flow.leaves:
        raise CheckpointError(
            f"the items of the state have the leaves {flow.leaves}, those of this source {leaves}"
        )
    if flow.rows.shape[1] != stage._row_bytes or len(flow.references) != leaves.count("object"):
        raise CheckpointError("the items of the state are not whole")


def fill(stage: Any, flow: Flow) -> None:
    """Put the items of a state into a stage that stands at its position."""
    if flow.objects is None:
        stage._restore(flow.rows, flow.references, flow.order)
        return
    for slot, item in enumerate(flow.objects):
        stage._refill(item, [0], [slot])
