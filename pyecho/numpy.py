"""Adapters, and the one for NumPy: arrays, and tensors that can be shown as arrays."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyecho._core import ConfigError
from pyecho.spec import Field, array_field

__all__ = ["NUMPY", "Adapter"]


@dataclass(frozen=True)
class Adapter:
    """Converts between NumPy's arrays and those of another library."""

    as_array: Callable[[Any], Any]
    """Returns a leaf as an ndarray that shares its memory, or None if it is not an array."""

    decoder: Callable[[list[Field]], Callable[[Any, int], Any] | None]
    """Given the leaves, returns what turns an ndarray of a batch (and its leaf number) into what
    the consumer gets, or None for the ndarray itself. Raises `ConfigError` if nothing can.
    """

    allocate: Callable[[int], Any] | None = None
    """Allocates pinned memory for batches; see `EchoBuffer`. None if the library has none."""

    def field_of(self, leaf: Any) -> Field:
        """Describe a leaf; ``Field((), object)`` for what travels by reference."""
        array = self.as_array(leaf)
        return array_field(leaf if array is None else array)


def is_tensor(leaf: Any) -> bool:
    """Return True if `leaf` is a torch tensor; does not import torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(leaf, torch.Tensor)


def as_array(leaf: Any) -> Any:
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


NUMPY = Adapter(as_array=as_array, decoder=lambda fields: None)
