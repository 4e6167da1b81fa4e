"""Leaves whose examples differ in size: the options `fields` and `pad`, and what batches have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pyecho._core import ConfigError
from pyecho.items.nest import leaf_names, leaves_of, map_nest
from pyecho.items.spec import Adapter, Field, Padded

Fields = Mapping[Any, Field] | Field | None
Pad = Mapping[Any, float] | float | None


def checked_fields(fields: Any, pad: Any) -> None:
    """Raise `ConfigError` unless these are a `Field` and a number, or dicts of them by leaf."""
    numbers = (bool, int, float, complex, np.generic)
    for name, given, kinds in (("fields", fields, (Field,)), ("pad", pad, numbers)):
        several = given.values() if isinstance(given, Mapping) else [given]
        if given is not None and not all(isinstance(each, kinds) for each in several):
            what = "a pyecho.Field" if name == "fields" else "a number"
            raise ConfigError(f"{name} must be {what}, or a dict of them by leaf, got {given!r}")


def with_fields(spec: Any, fields: Fields) -> Any:
    """Return the spec of an example with the fields that were given for its leaves."""
    if fields is None:
        return spec
    names, found = leaf_names(spec), leaves_of(spec)
    for name, field in by_leaf("fields", fields, found, names).items():
        index = _index_of("fields", str(name), names)
        by_rows = field.varies and found[index].by_reference  # arrays of a column of objects
        if not by_rows and not field.takes(found[index]):
            raise ConfigError(
                f"fields has {field} for the leaf {name!r}, and the first example {found[index]}"
            )
        found[index] = field
    made = iter(found)
    return map_nest(lambda _: next(made), spec)


def ragged_rows(row_spec: Any, adapter: Adapter, pad: Pad) -> Callable[[Any, Any, int], Any] | None:
    """Return what makes of elements, shapes and the number of a leaf what the consumer gets.

    None: no rows differ in size.
    """
    fields, names = leaves_of(row_spec), leaf_names(row_spec)
    given = {} if pad is None else by_leaf("pad", pad, fields, names)
    values = {_index_of("pad", str(name), names): value for name, value in given.items()}
    for index in values:
        if not fields[index].varies:
            raise ConfigError(
                f"pad has a value for the leaf {names[index]!r}, whose rows all have the shape "
                f"{fields[index].shape}; it is for leaves with None in their shape (fields=)"
            )
    if not any(field.varies for field in fields):
        return None
    decode = adapter.decoder(fields) or (lambda array, leaf: array)

    def rows(elements: Any, shapes: Any, leaf: int) -> Any:
        shapes = shapes.copy()  # of the batch's memory, which may be pinned and go on without them
        offsets = np.zeros(len(shapes) + 1, np.int64)
        np.cumsum(shapes.prod(axis=1), out=offsets[1:])
        if leaf not in values:
            return adapter.ragged(fields[leaf], decode(elements, leaf), offsets, shapes)
        made, lengths = padded(fields[leaf], elements, offsets, shapes, values[leaf])
        return Padded(decode(made, leaf), adapter.numbers(lengths))

    return rows


def padded(field: Field, elements: Any, offsets: Any, shapes: Any, value: Any) -> tuple[Any, Any]:
    """Return the rows filled up to the largest of them, and their extents where these vary."""
    largest = shapes.max(axis=0, initial=0)
    made = np.full((len(shapes), *largest), value, elements.dtype)
    for row, shape in enumerate(shapes.tolist()):
        part = made[row][tuple(map(slice, shape))]
        part[...] = elements[offsets[row] : offsets[row + 1]].reshape(shape)
    varying = [axis for axis, extent in enumerate(field.shape) if extent is None]
    lengths = shapes[:, varying] if len(varying) > 1 else shapes[:, varying[0]]
    return made, np.ascontiguousarray(lengths)


def by_leaf(option: str, given: Any, fields: list[Field], names: list[str]) -> Any:
    """Return what an option has for each leaf; what is no dict is for the one with axes."""
    if isinstance(given, Mapping):
        return given
    with_axes = [name for name, field in zip(names, fields, strict=True) if field.shape]
    if len(with_axes) != 1:
        raise ConfigError(
            f"{option} without the name of a leaf needs examples with one leaf that has axes, got "
            f"{with_axes or 'none'}; pass a dict by name, such as {option}={{'image': ...}}"
        )
    return {with_axes[0]: given}


def _index_of(option: str, name: str, names: list[str]) -> int:
    if name not in names:
        known = ", ".join(map(repr, names))
        raise ConfigError(f"{option} names the leaf {name!r}, but an example has {known}")
    return names.index(name)
