"""Leaves whose examples differ in size: the options `fields` and `pad`, and what batches have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pyecho._core import ConfigError
from pyecho.items.nest import leaf_names, leaves_of, map_nest
from pyecho.items.spec import Adapter, Field, Padded

Fields = Mapping[Any, Field] | None
Pad = Mapping[Any, float] | None


def checked_fields(fields: Any, pad: Any) -> None:
    """Raise `ConfigError` unless these are dicts by leaf, of `Field` and of numbers."""
    if fields is not None and not (
        isinstance(fields, Mapping) and all(isinstance(each, Field) for each in fields.values())
    ):
        raise ConfigError(f"fields must be a dict of pyecho.Field by leaf, got {fields!r}")
    numbers = (bool, int, float, complex, np.generic)
    if pad is not None and not (
        isinstance(pad, Mapping) and all(isinstance(each, numbers) for each in pad.values())
    ):
        raise ConfigError(f"pad must be a dict of numbers by leaf, got {pad!r}")


def with_fields(spec: Any, fields: Fields) -> Any:
    """Return the spec of an example with the fields that were given for its leaves."""
    if not fields:
        return spec
    names, found = leaf_names(spec), leaves_of(spec)
    for name, field in fields.items():
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
    values = {_index_of("pad", str(name), names): value for name, value in (pad or {}).items()}
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


def _index_of(option: str, name: str, names: list[str]) -> int:
    if name not in names:
        known = ", ".join(map(repr, names))
        raise ConfigError(f"{option} names the leaf {name!r}, but an example has {known}")
    return names.index(name)
