"""Leaves whose examples differ in size: the option `fields`, and what batches have."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from pyecho._core import ConfigError
from pyecho.items.nest import flatten
from pyecho.items.spec import Adapter, Field, Padded, is_bfloat16

MOST_BFLOAT16 = (2 - 2**-7) * 2.0**127

Fields = Mapping[Any, Field] | Field | None


def checked_fields(fields: Any) -> Any:
    """Return a `Field`, a dict of them by the names of leaves in order, or None."""
    several = fields.values() if isinstance(fields, Mapping) else [fields]
    if fields is not None and not all(isinstance(field, Field) for field in several):
        raise ConfigError(
            f"fields must be a pyecho.Field, or a dict of them by leaf, got {fields!r}"
        )
    if not isinstance(fields, Mapping):
        return fields
    named = {str(key): field for key, field in sorted(fields.items(), key=lambda it: str(it[0]))}
    if len(named) < len(fields):
        raise ConfigError(f"fields names a leaf twice, got the keys {list(fields)}; name it once")
    return named


def with_fields(spec: Any, fields: Fields) -> Any:
    """Return the spec of an example with the fields that were given for its leaves."""
    if fields is None:
        return spec
    leaves, structure = flatten(spec)
    names = structure.names()
    given = by_leaf("fields", fields, leaves, names)
    for index, field in zip(indices_of("fields", given, names), given.values(), strict=True):
        first = leaves[index]
        by_rows = field.varies and first.by_reference  # arrays of a column of objects
        if not by_rows and not field.takes(first):
            raise ConfigError(
                f"fields has {field} for the leaf {names[index]!r}, and the first example {first}"
            )
        dtype = field.dtype if by_rows else first.dtype
        leaves[index] = Field(field.shape, dtype, field.max_bytes, field.pad)
    return structure.unflatten(leaves)


class RaggedRows(NamedTuple):
    """The rows of the leaves that differ in size, as native stages make them."""

    pads: list[bytes]
    """Of each leaf the element that pads its rows; empty: they are not padded."""
    make: Callable[[Any, Any, int], Any]
    """Makes what the consumer gets: of elements (padded, or one row after the other), the shapes of
    rows, and the number of the leaf."""


def ragged_rows(row_spec: Any, adapter: Adapter) -> RaggedRows | None:
    """Return how the ragged rows of a batch are made; None: no rows differ in size."""
    fields, structure = flatten(row_spec)
    for name, field in zip(structure.names(), fields, strict=True):
        if field.pad is not None and not _is_value(field.pad, field.dtype):
            raise ConfigError(
                f"pad={field.pad!r} is no value of the leaf {name!r}, which has {field.dtype}"
            )
    if not any(field.varies for field in fields):
        return None
    decode = adapter.decoder(fields) or (lambda array, leaf: array)

    def make(elements: Any, shapes: Any, leaf: int) -> Any:
        field = fields[leaf]
        if field.pad is not None:
            varying = [axis for axis, extent in enumerate(field.shape) if extent is None]
            lengths = shapes[:, varying] if len(varying) > 1 else shapes[:, varying[0]]
            return Padded(decode(elements, leaf), adapter.numbers(lengths.copy()))
        shapes = shapes.copy()  # of the batch's memory, which may be pinned and go on without them
        offsets = np.zeros(len(shapes) + 1, np.int64)
        np.cumsum(shapes.prod(axis=1), out=offsets[1:])
        return adapter.ragged(field, decode(elements, leaf), offsets, shapes)

    def pad_of(leaf: int, field: Field) -> bytes:
        if field.pad is None or not field.varies:
            return b""
        element = np.empty(1, field.dtype)
        decode(element, leaf)[...] = field.pad
        return element.tobytes()

    return RaggedRows([pad_of(leaf, field) for leaf, field in enumerate(fields)], make)


def _is_value(number: Any, dtype: np.dtype[Any]) -> bool:
    """Return True if elements of a dtype can have this value; floats perhaps rounded."""
    if isinstance(number, complex) and dtype.kind != "c":
        return False
    if dtype.kind in "biu":
        least, most = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        return bool(least <= number <= most and number == int(number))
    if not is_bfloat16(dtype) and dtype.kind not in "fc":
        return False
    largest = MOST_BFLOAT16 if is_bfloat16(dtype) else float(np.finfo(dtype).max)
    return not any(largest < abs(part) < math.inf for part in (number.real, number.imag))


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


def indices_of(option: str, keys: Iterable[Any], names: list[str]) -> list[int]:
    """Return the numbers of the leaves that an option names, each once."""
    given = list(map(str, keys))
    for name in given:
        known = ", ".join(map(repr, names))
        if name not in names:
            raise ConfigError(f"{option} names the leaf {name!r}, but an example has {known}")
        if names.count(name) > 1:
            raise ConfigError(
                f"{option} names the leaf {name!r}, and an example has several of that name: "
                f"{known}; give one of them another key in the source"
            )
        if given.count(name) > 1:
            raise ConfigError(f"{option} names the leaf {name!r} twice: {given}; name it once")
    return list(map(names.index, given))
