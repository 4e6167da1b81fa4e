"""What a loader has to know about the library whose arrays it speaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyecho.spec import Field

__all__ = ["Adapter"]


@dataclass(frozen=True)
class Adapter:
    """The arrays of one library, as the loaders see them."""

    field_of: Callable[[Any], Field]
    """Describes a leaf; ``Field((), object)`` for what travels by reference."""

    as_array: Callable[[Any], Any]
    """Returns a leaf as an ndarray that shares its memory, or None if it is not an array."""

    decoder: Callable[[list[Field]], Callable[[Any, int], Any] | None]
    """Given the leaves, returns what turns an ndarray of a batch (and its leaf number) into what
    the consumer gets, or None for the ndarray itself. Raises `ConfigError` if nothing can.
    """
