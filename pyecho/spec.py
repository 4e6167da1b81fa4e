"""Specs: what one example looks like.

A spec is the nest of an example (see `pyecho.nest`) with a `Field` for each leaf. Adapters decide
what counts as an array; the nests are the same for all.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pyecho._core import ConfigError
from pyecho.nest import leaf_types, leaves_of, map_nest

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
    seen: str | None = field(compare=False, repr=False)
    """Name of the type that an example has here if it is no array, and then no example may have
    one; None if any object will do."""

    def __init__(self, shape: int | tuple[int, ...], dtype: Any) -> None:
        several = shape if isinstance(shape, Iterable) else (shape,)
        extents = tuple(operator.index(extent) for extent in several)
        if any(extent < 0 for extent in extents):
            raise ConfigError(f"a shape needs extents of at least 0, got {extents}")
        object.__setattr__(self, "shape", extents)
        object.__setattr__(self, "dtype", np.dtype(dtype))
        object.__setattr__(self, "seen", None)
        if self.dtype.hasobject and (extents or self.dtype != object):
            raise ConfigError(
                f"dtype {self.dtype} holds Python objects, which travel by reference: "
                "use Field((), object), or a dtype of plain numbers"
            )

    @property
    def by_reference(self) -> bool:
        """True if the leaf travels as a Python reference."""
        return bool(self.dtype == object)


leaf_types.add(Field)


def array_field(leaf: Any) -> Field:
    """Describe a leaf as NumPy sees it: arrays, scalars and numbers; the rest is an object."""
    refuse_masked(leaf)
    if isinstance(leaf, np.ndarray) and not leaf.dtype.hasobject:
        return Field(leaf.shape, leaf.dtype)
    if isinstance(leaf, np.generic) and not isinstance(leaf, str | bytes | np.object_):
        return Field((), leaf.dtype)
    if isinstance(leaf, bool | int | float | complex):
        kinds = (bool, int, float, complex)
        return Field((), next(np.dtype(kind) for kind in kinds if isinstance(leaf, kind)))
    reference = Field((), object)
    object.__setattr__(reference, "seen", type(leaf).__name__)
    return reference


def refuse_masked(leaf: Any) -> None:
    """Raise `ConfigError` for a masked array, of which only the data would arrive."""
    if isinstance(leaf, np.ma.MaskedArray):
        raise ConfigError(
            "masked arrays would lose their mask in a batch; use .filled(), or pass data and mask"
        )


def spec_of(example: Any) -> Any:
    """Return the spec of an example: the same nest, with a `Field` for each leaf.

    Parameters
    ----------
    example
        An array, tensor, number, or any nest of dict, list, tuple, namedtuple, `Mapping`, dataclass
        and registered pytree node of them. Leaves of other kinds (str, bytes, objects) become
        ``Field((), object)``; if they come of an example, arrays are refused in their place.
    """
    from pyecho.numpy import NUMPY

    return map_nest(NUMPY.field_of, example)


def fields_of(spec: Any) -> list[Field]:
    """Return the leaves of a spec; raises `ConfigError` if it is not a nest of `Field`."""
    fields = leaves_of(spec)
    for leaf in fields:
        if not isinstance(leaf, Field):
            raise ConfigError(
                "a spec is a nest of pyecho.Field, as spec_of(example) returns it, "
                f"but it has a leaf of type {type(leaf).__name__}"
            )
    if not fields:
        raise ConfigError("a spec needs at least one leaf, got an empty nest")
    return fields
