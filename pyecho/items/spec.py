"""Specs: what one example looks like.

A spec is the nest of an example (see `pyecho.items.nest`) with a `Field` for each leaf. Adapters
decide what counts as an array; the nests are the same for all.
"""

from __future__ import annotations

import contextlib
import operator
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from pyecho._core import ConfigError
from pyecho.items.nest import leaves_of, map_nest
from pyecho.items.node import leaf_types


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


class Adapter:
    """Converts between NumPy's arrays and another library's; this one knows none.

    Tensors, and other objects that speak DLPack, can be shown as arrays.
    """

    allocate: ClassVar[Any] = None
    """Allocates pinned memory for batches, see `EchoBuffer`; None if the library has none."""

    def as_array(self, leaf: Any) -> Any:
        """Return a leaf as an ndarray that shares its memory, or None if it is not an array."""
        if isinstance(leaf, np.ndarray):
            return leaf
        if not hasattr(leaf, "__dlpack__"):
            return None
        try:
            return np.from_dlpack(leaf.detach() if is_tensor(leaf) else leaf)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            hint = "; use pyecho.torch.EchoLoader" if is_tensor(leaf) else ""
            if not is_tensor(leaf) and hasattr(leaf, "__array__"):
                with contextlib.suppress(BufferError, RuntimeError, TypeError, ValueError):
                    return np.asarray(leaf)  # DLPack cannot name bfloat16 to NumPy, but JAX can
            raise ConfigError(
                f"a {type(leaf).__name__} cannot be shown as a NumPy array ({error}){hint}"
            ) from error

    def decoder(self, fields: list[Field]) -> Callable[[Any, int], Any] | None:
        """Return what makes of an ndarray of a batch (and its leaf number) what the consumer gets.

        None: it gets the ndarray. Raises `ConfigError` if a field cannot be decoded.
        """
        return None

    def saved(self, array: Any) -> Any:
        """Return what a state holds for an array: something that the library's files can carry."""
        return array

    def field_of(self, leaf: Any) -> Field:
        """Describe a leaf: arrays, scalars and numbers; the rest is an object."""
        array = self.as_array(leaf)
        leaf = leaf if array is None else array
        if isinstance(leaf, np.ndarray) and not leaf.dtype.hasobject:
            return Field(leaf.shape, leaf.dtype)
        if isinstance(leaf, np.generic) and not isinstance(leaf, str | bytes | np.object_):
            return Field((), leaf.dtype)
        for kind in (bool, int, float, complex):
            if isinstance(leaf, kind):
                return Field((), kind)
        reference = Field((), object)
        object.__setattr__(reference, "seen", type(leaf).__name__)
        return reference


NUMPY = Adapter()


def is_tensor(leaf: Any) -> bool:
    """Return True if `leaf` is a torch tensor; does not import torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(leaf, torch.Tensor)


def spec_of(example: Any) -> Any:
    """Return the spec of an example: the same nest, with a `Field` for each leaf.

    Parameters
    ----------
    example
        An array, tensor, number, or any nest of dict, list, tuple, namedtuple, `Mapping`,
        dataclass, TensorDict and registered node (`register_node`) of them. Leaves of other kinds
        (str, bytes, objects) become ``Field((), object)``; if they come of an example, arrays are
        refused instead of them.
    """
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
        raise ConfigError(
            "a spec, and an item to make batches of, needs at least one leaf (an array, number, "
            "str or other object), got an empty nest"
        )
    return fields
