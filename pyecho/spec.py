"""Specs: what one example looks like.

A spec is a nest of dicts, lists, tuples and namedtuples whose leaves are `Field`. Adapters decide
what counts as an array; the nests are the same for all.
"""

from __future__ import annotations

import copy
import dataclasses
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyecho._core import ConfigError, Structure

__all__ = ["Field", "spec_of"]


@dataclass(frozen=True, init=False)
class Field:
    """One leaf of an example: its shape and dtype.

    Parameters
    ----------
    shape
        Shape of one example, without a batch axis; an int means one axis.
    dtype
        Anything `numpy.dtype` accepts. `object` (with shape ``()``) stands for a leaf that travels
        by reference, such as a str; it arrives as a list.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __init__(self, shape: int | tuple[int, ...], dtype: Any) -> None:
        several = shape if isinstance(shape, Iterable) else (shape,)
        extents = tuple(operator.index(extent) for extent in several)
        if any(extent < 0 for extent in extents):
            raise ConfigError(f"a shape needs extents of at least 0, got {extents}")
        object.__setattr__(self, "shape", extents)
        object.__setattr__(self, "dtype", np.dtype(dtype))
        if self.dtype.hasobject and (extents or self.dtype != object):
            raise ConfigError(
                f"dtype {self.dtype} holds Python objects, which travel by reference: "
                "use Field((), object), or a dtype of plain numbers"
            )

    @property
    def by_reference(self) -> bool:
        """Whether the leaf travels as a Python reference."""
        return bool(self.dtype == object)


FieldOf = Callable[[Any], Field]
"""What an adapter makes of a leaf."""


def array_field(leaf: Any) -> Field:
    """Describe a leaf as NumPy sees it: arrays, scalars and numbers; the rest is an object.

    Parameters
    ----------
    leaf
        Anything that is not a nest.
    """
    refuse_masked(leaf)
    if isinstance(leaf, np.ndarray) and not leaf.dtype.hasobject:
        return Field(leaf.shape, leaf.dtype)
    if isinstance(leaf, np.generic) and not isinstance(leaf, str | bytes | np.object_):
        return Field((), leaf.dtype)
    if isinstance(leaf, bool | int | float | complex):
        kinds = (bool, int, float, complex)
        return Field((), next(np.dtype(kind) for kind in kinds if isinstance(leaf, kind)))
    _refuse_container_of_arrays(leaf)
    return Field((), object)


def refuse_masked(leaf: Any) -> None:
    """Raise `ConfigError` for a masked array, of which only the data would arrive."""
    if isinstance(leaf, np.ma.MaskedArray):
        raise ConfigError(
            "masked arrays would lose their mask in a batch; use .filled(), or pass data and mask"
        )


def _refuse_container_of_arrays(leaf: Any) -> None:
    """Raise `ConfigError` for what would travel by reference although it looks like a nest."""
    if isinstance(leaf, Mapping):
        children = list(leaf.values())
    elif dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
        children = [getattr(leaf, field.name, None) for field in dataclasses.fields(leaf)]
    else:
        return
    if any(hasattr(child, "__array__") or hasattr(child, "__dlpack__") for child in children):
        raise ConfigError(
            f"a {type(leaf).__name__} with arrays in it is not taken apart; nests are made of "
            "dict, list, tuple and namedtuple: convert it in the source (dict(), asdict())"
        )


def spec_of(example: Any) -> Any:
    """Return the spec of an example: the same nest, with a `Field` for each leaf.

    Parameters
    ----------
    example
        An array, tensor, number, or any nest of dict, list, tuple and namedtuple of them. Leaves of
        other kinds (str, bytes, objects) become ``Field((), object)``.
    """
    from pyecho.numpy import field_of

    return map_nest(field_of, example)


def is_nest(value: Any) -> bool:
    """Whether `value` is a dict, list or tuple, and so not a leaf."""
    return isinstance(value, dict | list | tuple)


def tuple_like(nest: Any, children: list[Any]) -> Any:
    """Return the children in a tuple, or in a namedtuple of the type of `nest`."""
    return nest._make(children) if hasattr(nest, "_fields") else tuple(children)


def map_nest(function: Callable[[Any], Any], nest: Any) -> Any:
    """Return the nest with each leaf replaced by ``function(leaf)``."""
    if isinstance(nest, dict) and type(nest) is not dict:
        mapped = copy.copy(nest)  # an OrderedDict, a defaultdict, one of the user's own
        for key, child in nest.items():
            mapped[key] = map_nest(function, child)
        return mapped
    if isinstance(nest, dict):
        return {key: map_nest(function, child) for key, child in nest.items()}
    if isinstance(nest, list):
        return [map_nest(function, child) for child in nest]
    if isinstance(nest, tuple):
        children = [map_nest(function, child) for child in nest]
        return tuple_like(nest, children)
    return function(nest)


def row_spec(batch: Any, field_of: FieldOf) -> Any:
    """Return the spec of one row of a batch.

    Parameters
    ----------
    batch
        A nest whose leaves are arrays with a leading batch axis, or, for rows that are no arrays,
        lists or tuples with one object per row.
    field_of
        The adapter's notion of a leaf.
    """
    lengths = [field.shape[0] for field in leaves_of(map_nest(field_of, batch)) if field.shape]
    if not lengths:
        raise ConfigError(
            "unbatch=True needs items with at least one array that has a batch axis, got "
            f"{type(batch).__name__}; pass unbatch=False if the source yields single examples"
        )

    def is_column(value: Any) -> bool:
        plain = isinstance(value, list | tuple) and not hasattr(value, "_fields")
        return (
            plain
            and len(value) == lengths[0]
            and not any(is_nest(row) or field_of(row).shape for row in value)
        )

    def row_field(leaf: Any, path: str) -> Field:
        field = field_of(leaf)
        if not field.shape:
            raise ConfigError(
                f"{path}: unbatch=True cannot split a leaf of type {type(leaf).__name__} into "
                "rows; give it a batch axis, or drop it in the source"
            )
        return Field(field.shape[1:], field.dtype)

    def walk(value: Any, path: str) -> Any:
        if is_column(value):
            return Field((), object)
        if isinstance(value, dict):
            return {key: walk(child, f"{path}[{key!r}]") for key, child in value.items()}
        if isinstance(value, list | tuple):
            children = [walk(child, f"{path}[{number}]") for number, child in enumerate(value)]
            return children if isinstance(value, list) else tuple_like(value, children)
        return row_field(value, path)

    return walk(batch, "item")


def rows_of(batch: Any) -> int:
    """Return the number of rows of a batch: the length of its first array."""
    return next(len(leaf) for leaf in leaves_of(batch) if getattr(leaf, "shape", ()))


def leaves_of(nest: Any) -> list[Any]:
    """Return the leaves of a nest, in order."""
    leaves: list[Any] = []
    map_nest(leaves.append, nest)
    return leaves


def structure_of(spec: Any) -> Structure:
    """Compile a spec for the native stage; raises `ConfigError` if it is not a nest of `Field`."""
    fields = leaves_of(spec)
    for field in fields:
        if not isinstance(field, Field):
            raise ConfigError(
                "a spec is a nest of pyecho.Field, as spec_of(example) returns it, "
                f"but it has a leaf of type {type(field).__name__}"
            )
    if not fields:
        raise ConfigError("a spec needs at least one leaf, got an empty nest")
    numbers = iter(range(len(fields)))
    return Structure(
        map_nest(lambda _: next(numbers), spec),
        [None if field.by_reference else (field.dtype, field.shape) for field in fields],
    )
