"""The adapter for NumPy: arrays, and tensors of other libraries that can be shown as arrays."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from pyecho._core import ConfigError
from pyecho.adapter import Adapter
from pyecho.spec import Field, array_field

__all__ = ["NUMPY"]


def as_array(leaf: Any) -> Any:
    """Return a leaf as an ndarray that shares its memory, or None if it is not an array."""
    if isinstance(leaf, np.ndarray):
        return leaf
    if not hasattr(leaf, "__dlpack__"):
        return None
    try:
        if hasattr(leaf, "detach"):
            leaf = leaf.detach()
        return np.from_dlpack(leaf)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        hint = "; use pyecho.torch.EchoLoader" if "torch" in sys.modules else ""
        raise ConfigError(
            f"a {type(leaf).__name__} cannot be shown as a NumPy array ({error}){hint}"
        ) from error


def field_of(leaf: Any) -> Field:
    """Describe a leaf, taking tensors of other libraries for arrays."""
    array = as_array(leaf)
    return array_field(leaf if array is None else array)


NUMPY = Adapter(field_of=field_of, as_array=as_array, decoder=lambda fields: None)
