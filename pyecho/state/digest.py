"""The digest of a saved state."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

import numpy as np

from pyecho import _core
from pyecho.items.spec import plain_tensor


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
        columns = [each for each in unspent["columns"] if type(each) in (list, dict)]
        rest["unspent"] = {**unspent, "columns": columns}  # the others have a checksum
    for part in _digested(rest):
        found.update(part)
    return found.hexdigest()


def is_named(value: Any) -> TypeGuard[dict[str, Any]]:
    """Return True for a dict in which a name can be looked up without calling a key."""
    return type(value) is dict and all(type(key) is str for key in value)


def _digested(value: Any) -> Iterator[bytes]:
    kind, base = type(value), _base_of(value, np.ndarray, np.generic)
    if base is np.ndarray:
        value = np.ndarray.view(value, np.ndarray)
    if base is np.generic or (base is np.ndarray and value.ndim == 0):
        value = base.item(value)
        kind = type(value)
    base = _base_of(value, dict, list, tuple, bytes, bytearray, *_PLAIN)
    if base is dict:
        items = [(_text_of_key(key), key, each) for key, each in dict.items(value)]
        yield b"{%d" % len(items)
        # Keys without a text come last, in their order, as nothing else tells them apart.
        for text, key, each in sorted(items, key=lambda item: (item[0] is None, item[0] or "")):
            known = f"<{type(key).__qualname__}>" if text is None else text
            yield known.encode("utf-8", "surrogatepass")
            yield from _digested(each)
    elif base in (list, tuple):
        parts = list(base.__iter__(value))
        yield b"[%d" % len(parts)
        for each in parts:
            yield from _digested(each)
    elif base in (bytes, bytearray):
        plain = base.__getitem__(value, slice(None))
        yield b"b%d:" % len(plain) + plain
    elif base is not None:
        yield f"{base.__repr__(value)};".encode("utf-8", "surrogatepass")
    elif (array := _bytes_of(value)) is not None:
        dtype = str(value.dtype).removeprefix("torch.")  # a file may make tensors of arrays
        yield f"{dtype}{tuple(value.shape)}{_core.checksum(array)};".encode()
    else:
        yield f"<{kind.__qualname__}>".encode()


_PLAIN = (bool, int, float, complex, str, type(None))


def _base_of(value: Any, *kinds: Any) -> Any:
    """Return the first of these types that a value is of, without asking it; None if it is none."""
    return next((kind for kind in kinds if issubclass(type(value), kind)), None)


def _text_of_key(key: Any) -> str | None:
    """Return the value of a key of a dict, None if that cannot be told."""
    if _base_of(key, tuple):
        parts = [_text_of_key(each) for each in tuple.__iter__(key)]
        return None if None in parts else f"({', '.join(map(str, parts))})"
    base = _base_of(key, bytes, *_PLAIN)
    return None if base is None else str(base.__repr__(key))


def _bytes_of(value: Any) -> Any:
    """Return an array or tensor as a C-contiguous array; None if it is neither, or is special."""
    torch = sys.modules.get("torch")
    try:
        if torch is not None and type(value) is torch.Tensor:  # others may do anything
            if value.numel() == 0:  # which may have strides that no view can have
                return np.empty(0, np.uint8)
            value = plain_tensor(value).cpu().reshape(-1).contiguous().view(torch.uint8).numpy()
    except (RuntimeError, NotImplementedError, TypeError):
        return None
    if type(value) is not np.ndarray or value.dtype.hasobject:
        return None
    return np.ascontiguousarray(value)
