"""The digest of a saved state."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

import numpy as np

from pyecho import _core


def digest(state: Mapping[str, Any]) -> str:
    """Return a number of a state that changes with it, as text.

    Objects that are neither numbers, texts, arrays, tensors nor nests of them count by type only.
    Calls nothing of the values but what Python, NumPy and torch define themselves.
    """
    import hashlib  # slow to import

    found = hashlib.blake2b(digest_size=16)
    rest = {name: state[name] for name in state if name != "digest"}
    unspent = rest.get("unspent")
    if is_named(unspent) and type(unspent.get("columns")) is list:
        columns = [each for each in unspent["columns"] if type(each) is list]
        rest["unspent"] = {**unspent, "columns": columns}  # the others have a checksum
    for part in _digested(rest):
        found.update(part)
    return found.hexdigest()


def is_named(value: Any) -> TypeGuard[dict[str, Any]]:
    """Return True for a dict in which a name can be looked up without calling a key."""
    return type(value) is dict and all(type(key) is str for key in value)


def _digested(value: Any) -> Iterator[bytes]:
    kind = type(value)  # as isinstance() may ask the value for its class
    if issubclass(kind, np.ndarray):
        value = np.ndarray.view(value, np.ndarray)
    if issubclass(kind, np.generic) or (issubclass(kind, np.ndarray) and value.ndim == 0):
        value = (np.generic if issubclass(kind, np.generic) else np.ndarray).item(value)
        kind = type(value)
    if issubclass(kind, dict):
        items = list(dict.items(value))
        yield b"{%d" % len(items)
        texts = [(_text_of_key(key), key, each) for key, each in items]
        known = [(text, each) for text, _, each in texts if text is not None]
        for known_text, each in sorted(known, key=lambda pair: pair[0]):
            yield known_text.encode("utf-8", "surrogatepass")
            yield from _digested(each)
        for text, key, each in texts:  # in their order, as nothing else tells them apart
            if text is None:
                yield f"<{type(key).__qualname__}>".encode()
                yield from _digested(each)
    elif issubclass(kind, list | tuple):
        parts = list((list if issubclass(kind, list) else tuple).__iter__(value))
        yield b"[%d" % len(parts)
        for each in parts:
            yield from _digested(each)
    elif issubclass(kind, bytes | bytearray):
        plain = (bytes if issubclass(kind, bytes) else bytearray).__getitem__(value, slice(None))
        yield b"b%d:" % len(plain) + plain
    elif (base := _base_of(value)) is not None:
        yield f"{base.__repr__(value)};".encode("utf-8", "surrogatepass")
    else:
        array = _bytes_of(value)
        if array is None:
            yield f"<{kind.__qualname__}>".encode()
        else:
            dtype = str(value.dtype).removeprefix("torch.")  # a file may make tensors of arrays
            yield f"{dtype}{tuple(value.shape)}{_core.checksum(array)};".encode()


def _base_of(value: Any) -> Any:
    """Return the plain kind of a number or text; None if it is neither."""
    for base in (bool, int, float, complex, str, type(None)):
        if issubclass(type(value), base):
            return base
    return None


def _text_of_key(key: Any) -> str | None:
    """Return the value of a key of a dict, None if that cannot be told."""
    if issubclass(type(key), tuple):
        parts = [_text_of_key(each) for each in tuple.__iter__(key)]
        return None if None in parts else f"({', '.join(map(str, parts))})"
    base = bytes if issubclass(type(key), bytes) else _base_of(key)
    return None if base is None else str(base.__repr__(key))


def _bytes_of(value: Any) -> Any:
    """Return an array or tensor as a C-contiguous array; None if it is neither, or is special."""
    torch = sys.modules.get("torch")
    try:
        if torch is not None and type(value) is torch.Tensor:  # others may do anything
            if value.numel() == 0:  # which may have strides that no view can have
                return np.empty(0, np.uint8)
            value = value.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy()
    except (RuntimeError, NotImplementedError, TypeError):
        return None
    if type(value) is not np.ndarray or value.dtype.hasobject:
        return None
    return np.ascontiguousarray(value)
