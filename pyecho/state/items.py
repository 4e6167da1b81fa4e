"""Items in a snapshot: how the nodes of a pipeline save them, and fill their slots with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyecho._core import CheckpointError
from pyecho.items.nest import leaves_like, leaves_of, map_nest
from pyecho.items.spec import Adapter
from pyecho.state.position import Snapshot, Unspent, leaves_of_spec

Part = tuple[Any, bool, Any, Any]
"""Some items: a nest, whether it is a batch of them, the rows that are wanted, and which items of
the snapshot or of the plan they are."""


def unspent_state(native: dict[str, Any], columns: list[Any], adapter: Adapter) -> dict[str, Any]:
    """Return the items of batch echoing as a state holds them."""
    return {"numbers": adapter.saved(native.pop("numbers")), "columns": columns}


def examples_state(native: dict[str, Any], spec: Any, adapter: Adapter) -> dict[str, Any]:
    """Return the items of example echoing as a state holds them; `native`: of the stage."""
    columns = [
        column if isinstance(column, list) else adapter.saved(column)
        for column in native.pop("columns")
    ]
    leaves = leaves_of_spec(leaves_of(spec))
    found = {"checksum": native.pop("checksum"), "leaves": leaves}
    return unspent_state(native, columns, adapter) | found


def held_state(held: list[Any], spec: Any, adapter: Adapter) -> list[Any]:
    """Return examples that were read and not put, each as a list of its leaves."""

    def saved(leaf: Any) -> Any:
        if isinstance(leaf, np.generic) and not isinstance(leaf, str | bytes):
            leaf = np.asarray(leaf)
        plain = isinstance(leaf, np.ndarray) and leaf.dtype.kind in "biufc"
        return adapter.saved(leaf) if plain else leaf

    return [list(map(saved, leaves_like(spec, item))) for item in held]


def held_nest(held: Any, spec: Any) -> Any:
    """Return such an example again."""
    if type(held) is not list or len(held) != len(leaves_of(spec)):
        raise CheckpointError("the state tells of items read ahead that cannot be")
    leaves = iter(held)
    return map_nest(lambda _: next(leaves), spec)


def parts_of_items(unspent: Unspent) -> list[Part]:
    """Return the items of batch echoing."""
    [column] = unspent.columns
    return [(column[index], False, [0], [which]) for which, index in enumerate(unspent.order)]


def parts_of_examples(unspent: Unspent, spec: Any) -> list[Part]:
    """Return the examples, as one batch; `CheckpointError` if they have other leaves."""
    arrays = iter(unspent.arrays(leaves_of(spec)))
    columns = map_nest(lambda _: next(arrays), spec)
    count = len(unspent.numbers)
    return [(columns, True, unspent.order, np.arange(count))] if count else []


def refill(
    fill: Callable[[Any, bool, Any, Any], None],
    parts: list[Part],
    saved: Snapshot,
    places: tuple[Any, Any],
    *,
    adaptive: bool,
) -> None:
    """Fill the slots of a plan that has come to its position.

    Parameters
    ----------
    fill
        ``fill(nest, batched, rows, slots)`` of a native stage.
    parts
        The items of the snapshot, or the ones that were read again.
    places
        Numbers of the items that the plan holds, ascending, and the slot of each.
    """
    numbers, slots = places
    if saved.unspent is not None:
        slots = saved.unspent.slots_of(numbers, slots, adaptive=adaptive)
    if sum(len(which) for *_, which in parts) != len(slots):
        raise CheckpointError("the source does not yield the items that the state refers to")
    for nest, batched, rows, which in parts:
        fill(nest, batched, rows, slots[which])
