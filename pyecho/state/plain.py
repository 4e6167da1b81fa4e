"""Items that travel by reference, and batches made ahead, as plain data in a state, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyecho.items.spec import Padded, Ragged
from pyecho.state.loaded import Loaded, is_of

KIND = "pyecho"
"""Key of dicts that stand for something else."""

_ROWS: dict[str, Any] = {"Ragged": Ragged, "Padded": Padded}
_DTYPES = "biufcmMSU"  # kinds that their text tells
_NOTHING = np.empty(0, np.uint8)
_KEYS = {str, int, float, bool, bytes, type(None)}  # of dicts that are taken apart


def encoded(value: Any, saved: Callable[[Any], Any]) -> Any:
    """Return a nest of plain data; objects of other types stay as they are.

    `saved`: see `Adapter`.
    """
    kind = type(value)
    if kind is list or kind is tuple:
        return kind(encoded(each, saved) for each in value)
    if kind is dict and _KEYS.issuperset(map(type, value)):
        made = {key: encoded(each, saved) for key, each in value.items()}
        return {KIND: "dict", "parts": made} if KIND in made else made
    if kind is Ragged or kind is Padded:
        return {KIND: kind.__name__, "parts": encoded(list(value), saved)}
    is_array = kind is np.ndarray or isinstance(value, np.generic)
    # Where arrays are plain data, they stay as they are.
    if is_array and value.dtype.kind in _DTYPES and saved(_NOTHING) is not _NOTHING:
        whole = np.ascontiguousarray(value)  # an empty text has a dtype without bytes
        shape = list(value.shape) if kind is np.ndarray else None
        elements = saved(whole.reshape(-1).view(np.uint8))
        return {KIND: whole.dtype.str, "shape": shape, "elements": elements}
    return value


def decoded(value: Loaded) -> Any:
    """Return the nest again; `CheckpointError` if it is none."""
    nest = value.value
    if is_of(nest, list, tuple):
        return type(nest)(map(decoded, value.each()))
    if not is_of(nest, dict) or not _KEYS.issuperset(map(type, nest)):
        return nest
    name = value[KIND].of(str) if KIND in nest else None
    if name in (None, "dict"):
        parts = value if name is None else value["parts"]
        if not is_of(parts.value, dict) or not _KEYS.issuperset(map(type, parts.value)):
            parts.fail("a dict")
        return {key: decoded(Loaded(each, parts.place)) for key, each in parts.value.items()}
    if name in _ROWS:
        return _ROWS[name](*map(decoded, value["parts"].each(len(_ROWS[name]._fields))))
    elements, shape = value["elements"].array(np.uint8, 1), value["shape"]
    extents = [] if shape.value is None else [each.count() for each in shape.each()]
    try:
        dtype = np.dtype(name)
        array = elements.view(dtype).reshape(extents) if dtype.kind in _DTYPES else None
    except (SyntaxError, TypeError, ValueError, ZeroDivisionError):
        array = None
    if array is None:
        value.fail("elements of an array")
    return array[()] if shape.value is None else array
