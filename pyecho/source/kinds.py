"""Kinds of sources, told apart without reading them."""

from __future__ import annotations

import inspect
import mmap
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pyecho._core import ArrowReader, ConfigError
from pyecho.items.spec import is_tensor

ARROW = ("__arrow_c_stream__", "__arrow_c_array__")
"""How Arrow data is exported: as a stream, or, where there is none, a single array."""


def check_source(source: Any) -> None:
    """Raise `ConfigError` if `source` cannot be iterated or would yield something unexpected."""
    if _is_array(source) and source.ndim == 0:
        raise ConfigError("the source is an array of no axes; its first axis must count the items")
    if isinstance(source, Mapping | str | bytes):
        raise ConfigError(
            f"the source is a {type(source).__name__}, whose items would be its "
            f"{'keys' if isinstance(source, Mapping) else 'characters'}; pass what yields one "
            "example or batch after the other, such as a list of dicts"
        )
    for names, rows in _TABLES:
        if all(hasattr(source, name) for name in ("columns", *names)) and not is_arrow(source):
            raise ConfigError(
                f"the source is a {type(source).__name__}, whose items would be its columns, not "
                f"its rows; pass {rows}"
            )
    if not any(has_special(source, name) for name in ("__iter__", "__getitem__", *ARROW)):
        hint = "; call it and pass what it returns" if callable(source) else ""
        raise ConfigError(
            f"the source must be iterable (a list, an array, a generator, a DataLoader), "
            f"got {type(source).__name__}{hint}"
        )


_TABLES = (
    (
        ("iterrows",),  # pandas
        "its .to_numpy(), .to_dict('records') for a list of dicts, or for reading column by column "
        "pyarrow.Table.from_pandas(df, preserve_index=False), where each NaN is a null",
    ),
    (("iter_rows", "to_dicts"), "its .to_numpy(), or .to_dicts() for a list of dicts"),  # polars
    (("to_pylist",), "its .to_pylist(), a list of dicts"),  # pyarrow
)
"""Attributes of data frames and tables, besides ``columns``, and how to get their rows."""


def is_arrow(source: Any) -> bool:
    """Return True if a source is read as an Arrow stream or array.

    Not those of pandas: their index would be one column more, and each NaN a null.
    """
    return any(has_special(source, name) for name in ARROW) and not has_special(source, "iloc")


def arrow_reader(source: Any, chunk_bytes: int | None = None) -> ArrowReader:
    """Return a reader of what the source exports."""
    method = next(name for name in ARROW if has_special(source, name))
    return ArrowReader(getattr(source, method)(), chunk_bytes=chunk_bytes)


def arrow_rows(source: Any) -> int | None:
    """Return the number of rows, where telling it runs no query."""
    for name in ("num_rows", "height"):  # pyarrow, Polars
        rows = getattr(source, name, None)
        if isinstance(rows, int):
            return rows
    return length_of(source) if has_special(source, "__iter__") else None


def has_special(source: Any, name: str) -> bool:
    """Return True if Python finds the special method `name` of `source`."""
    return getattr(type(source), name, None) is not None


def is_stateful(value: Any) -> bool:
    """Return True if it has a ``state_dict`` to call without arguments, and ``load_state_dict``."""
    methods = [getattr(value, name, None) for name in ("state_dict", "load_state_dict")]
    if not all(map(callable, methods)):
        return False
    try:
        inspect.signature(methods[0]).bind()  # type: ignore[arg-type]
    except TypeError:  # MosaicML's StreamingDataset wants to be told how far it was read
        return False
    except ValueError:  # it tells no signature
        pass
    return True


def length_of(source: Any) -> int | None:
    """Return ``len(source)``, or None if it has no length."""
    try:
        return len(source)
    except (TypeError, NotImplementedError):
        return None


def _is_array(value: Any) -> bool:
    if is_tensor(value):
        return value.layout == sys.modules["torch"].strided and not value.is_nested
    return isinstance(value, np.ndarray)


def columns_of(source: Any) -> tuple[Any, ...] | None:
    """Return the arrays whose rows together are the items, None for any other source."""
    if _is_array(source):
        return (source,)
    if not (isinstance(source, tuple) and len(source) > 1):
        return None
    if not all(_is_array(column) and column.ndim > 0 for column in source):
        return None
    lengths = [len(column) for column in source]
    if len(set(lengths)) > 1:
        raise ConfigError(
            "the source is a tuple of arrays, whose rows together are the examples, but their "
            f"lengths differ: {lengths}; pass a list if each array is an item of its own"
        )
    return tuple(source)


def in_memory(source: Any) -> bool:
    """Return True if reading a source never waits."""
    if is_arrow(source):  # a table that knows its rows has them
        if isinstance(source, Iterator) or arrow_rows(source) is None:
            return False
        return not arrow_reader(source).is_mapped()
    if isinstance(source, np.ndarray):
        return not is_mapped(source)
    if _is_array(source):
        return bool(source.is_cpu)
    # A subclass that iterates in its own way may do anything.
    return getattr(type(source), "__iter__", None) in (
        list.__iter__,
        tuple.__iter__,
        range.__iter__,
    )


def is_mapped(array: np.ndarray[Any, Any]) -> bool:
    """Return True if an array, or the array it is a view of, lies in a mapped file."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        if isinstance(owner, np.memmap):
            return True
        owner = owner.base
    return isinstance(owner, mmap.mmap)
