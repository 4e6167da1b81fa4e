"""The types of Arrow columns, and which leaf of an item each becomes.

===============================================  ==============================================
Arrow                                            Leaf of an item
===============================================  ==============================================
numbers, float16 included, and bool              array of the same dtype
date, timestamp (in UTC)                         datetime64
time of day, duration                            timedelta64
fixed-size binary of N bytes                     uint8 array of shape (N,)
fixed-size list, also nested                     array with one axis more for each list
arrow.fixed_shape_tensor                         array of that shape
struct                                           dict
string, binary, also large and as views; null    str, bytes or None, by reference
list of varying length, also large               array, by reference; or of a `Field` in `fields`
dictionary-encoded                               as the values
other extension types                            as their storage
===============================================  ==============================================

Everything else has no leaf, and is refused by name.
"""

from __future__ import annotations

import json
import math
import operator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pyecho._core import ConfigError

Schema = tuple[str, str, dict[bytes, bytes], tuple[Any, ...], Any]
"""Format, name, metadata, children and dictionary of a column; a child or dictionary may be None.

The format is that of https://arrow.apache.org/docs/format/CDataInterface.html.
"""

INTEGERS = {"c": "i1", "C": "u1", "s": "i2", "S": "u2", "i": "i4", "I": "u4", "l": "i8", "L": "u8"}
PLAIN = INTEGERS | {"e": "f2", "f": "f4", "g": "f8", "tdm": "M8[ms]", "ttu": "m8[us]"}
PLAIN |= {"ttn": "m8[ns]", "tDs": "m8[s]", "tDm": "m8[ms]", "tDu": "m8[us]", "tDn": "m8[ns]"}
TIMESTAMPS = {f"ts{unit[0]}": f"M8[{unit}]" for unit in ("s", "ms", "us", "ns")}
"""The part before the colon. The time zone after it only says how to show them."""

SHORT_TIMES = {"tdD": "M8[D]", "tts": "m8[s]", "ttm": "m8[ms]"}
"""In 32 bits, where NumPy has 64."""

OBJECTS = {"n": "null", "u": "text32", "z": "text32", "U": "text64", "Z": "text64"}
OBJECTS |= {"vu": "view", "vz": "view"}
VARYING = {"+l": "varying32", "+L": "varying64"}

PAD = "pad it to a fixed-size list (in pyarrow, cast to pyarrow.list_(type, size)), or drop it"
FLATTEN = "make columns of what you need of it, or drop it"
REFUSED = {
    ("+v",): f"views of lists; cast them to lists, or {PAD}",
    ("+m",): f"maps; {FLATTEN}",
    ("+u",): f"values of several types (a union); {FLATTEN}",
    ("+r",): "runs (run-end encoded); decode it (in pyarrow, pyarrow.compute.run_end_decode)",
    ("d:",): "decimal numbers, which NumPy does not have; cast it to float64, or to an integer of "
    "the smallest unit",
    ("ti",): "calendar intervals, which NumPy does not have; cast it to a duration, or to numbers",
}
"""Beginnings of formats without a leaf of fixed size: what they are, and a remedy."""

MAX_SIZE = 1 << 47
OBJECT_BYTES, VARYING_BYTES = 64, 1024  # guesses


@dataclass(frozen=True)
class Column:
    """Way to read a column. `kind` is one of the names of `ArrowKind` in csrc/bindings/arrow."""

    path: str
    """For messages: column 'a.b'."""
    kind: str
    dtype: np.dtype[Any] | None = None
    """Of the values in memory, or of the indices into a dictionary."""
    cast: str | None = None
    """The dtype of the leaf, where it is another one."""
    size: int = 1
    """Values of the dtype, or of the only child, in a row."""
    shape: tuple[int, ...] = ()
    """The axes that these make in a row."""
    axes: tuple[int, ...] | None = None
    """For `numpy.transpose`, where `shape` is in another order; axis 0 is that of the rows."""
    is_str: bool = False
    names: tuple[str, ...] = ()
    """Of the children of a struct."""
    children: tuple[Column, ...] = ()

    @property
    def by_reference(self) -> bool:
        """True if rows are objects. Then a null is a None."""
        if self.kind == "dictionary":
            return self.children[0].by_reference
        return self.kind in OBJECTS.values() or self.kind in VARYING.values()

    @property
    def row_bytes(self) -> int:
        """The size of a row; of objects, a guess."""
        if self.kind in OBJECTS.values():
            return OBJECT_BYTES
        if self.kind in VARYING.values():
            return VARYING_BYTES
        if self.children:
            return self.size * sum(child.row_bytes for child in self.children)
        return self.size * self.dtype.itemsize if self.dtype is not None else 0


def column_of(schema: Schema, path: str = "the source") -> Column:
    """Return how a column is read. Raises `ConfigError` if there is no leaf for it."""
    format_, _, _, _, dictionary = schema
    if dictionary is not None:
        return _dictionary(schema, path)
    if format_ in PLAIN:
        return Column(path, "plain", np.dtype(PLAIN[format_]))
    if format_ == "b":
        return Column(path, "bits", np.dtype("?"))
    if format_ in SHORT_TIMES:
        return Column(path, "plain", np.dtype("i4"), SHORT_TIMES[format_])
    if format_ in OBJECTS:
        return Column(path, OBJECTS[format_], is_str=format_[-1] in "uU")
    if format_ == "+s":
        return _struct(schema, path)
    begin, colon, _ = format_.partition(":")
    if colon and begin in TIMESTAMPS:
        return Column(path, "plain", np.dtype(TIMESTAMPS[begin]))
    if colon and begin == "w":  # as uint8: a dtype of bytes would lose zeros at the end
        size = _size_in(format_, path)
        return Column(path, "plain", np.dtype("u1"), size=size, shape=(size,))
    if colon and begin == "+w":
        return _list(schema, path)
    if format_ in VARYING:
        values = _values_of_list(schema, path)
        return Column(path, VARYING[format_], size=0, children=(values,))
    for begins, what in REFUSED.items():
        if format_.startswith(begins):
            raise _refusal(path, f"has {what}")
    raise _refusal(
        path,
        f"has the Arrow format '{format_}', which pyecho does not know; cast it to another type "
        "in the source",
    )


def _refusal(path: str, why: str) -> ConfigError:
    return ConfigError(f"{path} {why}")


def _size_in(format_: str, path: str) -> int:
    digits = format_.partition(":")[2]
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20) or int(digits) > MAX_SIZE:
        raise _refusal(path, f"needs a size of 0 to 2^47 in its Arrow format, got '{format_}'")
    return int(digits)


def _dictionary(schema: Schema, path: str) -> Column:
    format_, _, _, _, dictionary = schema
    if format_ not in INTEGERS:
        raise _refusal(path, f"is dictionary-encoded with indices of the Arrow format '{format_}'")
    values = column_of(dictionary, path)
    if values.kind in ("struct", "dictionary"):
        raise _refusal(path, "is dictionary-encoded with nested values; decode it in the source")
    return Column(path, "dictionary", np.dtype(INTEGERS[format_]), children=(values,))


def _struct(schema: Schema, path: str) -> Column:
    children: dict[str, Column] = {}
    for child in schema[3]:
        name = _present(child, path)[1]
        if name in children:
            raise _refusal(path, f"has two columns named '{name}'; rename one of them")
        # The root has no name: its columns are column 'a', and theirs column 'a.b'.
        begin = f"{path[:-1]}." if path.endswith("'") else "column '"
        children[name] = column_of(child, f"{begin}{name}'")
    return Column(path, "struct", names=tuple(children), children=tuple(children.values()))


def _values_of_list(schema: Schema, path: str) -> Column:
    values = column_of(_present(next(iter(schema[3]), None), path), path)
    if values.by_reference or values.kind in ("struct", "dictionary"):
        raise _refusal(
            path, "has lists of something else than numbers; make columns of their parts"
        )
    return values


def _list(schema: Schema, path: str) -> Column:
    format_, _, metadata, _, _ = schema
    size = _size_in(format_, path)
    values = _values_of_list(schema, path)
    made = Column(path, "list", size=size, shape=(size,), children=(values,))
    if metadata.get(b"ARROW:extension:name") == b"arrow.fixed_shape_tensor":
        return _tensor(made, metadata.get(b"ARROW:extension:metadata", b""))
    return made


def _present(child: Any, path: str) -> Schema:
    if child is None:
        raise _refusal(path, "has an Arrow schema that lacks a child")
    return child  # type: ignore[no-any-return]


def _tensor(made: Column, metadata: bytes) -> Column:
    """Give a list of the extension type arrow.fixed_shape_tensor its shape."""
    try:
        found = json.loads(metadata)
        shape = tuple(map(operator.index, found["shape"]))
        axes = found.get("permutation")
        if axes is not None:
            axes = (0, *(operator.index(axis) + 1 for axis in axes))
        if min(shape, default=0) < 0 or sorted(axes or ()) not in ([], [*range(len(shape) + 1)]):
            raise ValueError
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"{made.path} is an arrow.fixed_shape_tensor with metadata that cannot be read: "
            f"{metadata.decode(errors='backslashreplace')}"
        ) from error
    if math.prod(shape) != made.size:
        raise _refusal(
            made.path,
            f"has tensors of shape {list(shape)} in lists of {made.size} values, and needs lists "
            f"of {math.prod(shape)}",
        )
    return replace(made, shape=shape, axes=axes)
