"""One walk over what was loaded: the types of its values, and its digest.

Nothing of a value is called but what Python, NumPy and torch define themselves. Each container is
walked once, however often it is met, and no array is copied that is larger than its memory, so a
walk takes time and memory in proportion to the bytes that were read.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, TypeGuard, TypeVar

import numpy as np

from pyecho import _core
from pyecho._core import CheckpointError
from pyecho.checked import MOST_COUNTED

MOST_DEPTH = 100  # of containers in each other
LARGE = 1000  # bytes
MOST_REPEATED = 2**26
"""Bytes of elements that share memory with others; each value met again counts as 64 of them."""
READS = 32
"""Bytes of arrays that are read again, as views of one memory, count as one of them."""

_WALKED = (dict, list, tuple, bytes, bytearray, bool, int, float, complex, str, type(None))

Kind = TypeVar("Kind")


@dataclass(slots=True)
class Loaded:
    """A value that was loaded, and where it is. Reading it raises `CheckpointError`."""

    value: Any
    within: str | Loaded = "the state"  # the place itself, or the container that the value is in
    key: str | int = ""
    _is_named: bool = False  # found before

    @property
    def place(self) -> str:
        """Where the value is, as messages say it."""
        if isinstance(self.within, str):
            return self.within
        return f"{self.within.place}[{self.key if type(self.key) is int else str(self.key)[:40]!r}]"

    def fail(self, needed: str) -> NoReturn:
        """Raise the error of a value that is not what is needed."""
        raise CheckpointError(
            f"{self.place} needs {needed}, and has {shown(plain(self.value))}: it is damaged; load "
            "an earlier one"
        )

    def __getitem__(self, name: str) -> Loaded:
        """Return a value of a dict."""
        self._is_named = self._is_named or is_named(self.value)
        if not self._is_named or name not in self.value:
            self.fail(f"a dict with {name!r}")
        return Loaded(self.value[name], self, name)

    def named(self) -> dict[str, Loaded]:
        """Return the values of a dict."""
        if not is_named(self.value):
            self.fail("a dict of names")
        return {name: Loaded(each, self, name) for name, each in self.value.items()}

    def each(self, *lengths: int) -> Iterator[Loaded]:
        """Yield the values of a list, or of a tuple, which some files make of lists."""
        if not is_of(self.value, list, tuple) or (lengths and len(self.value) not in lengths):
            self.fail(f"a list of length {' or '.join(map(str, lengths))}" if lengths else "a list")
        return (Loaded(each, self, at) for at, each in enumerate(self.value))

    def of(self, kind: type[Kind]) -> Kind:
        """Return a value of a type itself, or what is in a scalar or an array without axes."""
        value = self.value if type(self.value) is kind else plain(self.value)
        if type(value) is not kind:
            self.fail(f"a {kind.__name__}")
        return value

    def count(self, most: int = MOST_COUNTED) -> int:
        """Return a whole number."""
        number = self.of(int)
        if not 0 <= number <= most:
            self.fail(f"a number of 0 to {most}")
        return number

    def count_or_none(self, most: int = MOST_COUNTED) -> int | None:
        """Return a whole number, or None."""
        return None if self.value is None else self.count(most)

    def array(self, dtype: Any, axes: int) -> Any:
        """Return an array of this very dtype, or a tensor as one."""
        array = self._array(plain(self.value))
        fits = array is not None and array.dtype == dtype and array.ndim == axes
        if not fits or not array.flags.c_contiguous:  # a copy of each view could be any memory
            self.fail(f"an array of {np.dtype(dtype)} with {axes} axes, in C order")
        return array

    def numbers(self, kind: type, least: float, most: float, *shape: int | None) -> Any:
        """Return an array of numbers, which lists of lists may hold. None: of any extent."""
        value = plain(self.value)
        if is_of(value, list, tuple) and shape[0] in (None, len(value)):
            if len(shape) > 1:
                rows = [each.numbers(kind, least, most, *shape[1:]) for each in self.each()]
                return np.array(rows).reshape(len(rows), *shape[1:])
            values = value if all(type(each) is int for each in value) else list(map(plain, value))
            value = np.array(values) if all(is_of(each, int, kind) for each in values) else None
        array = self._array(value)
        kinds = "iu" if kind is int else "iuf"
        fits = array is not None and array.ndim == len(shape)
        fits = fits and (array.dtype.kind in kinds or not array.size)
        pairs = zip(array.shape if fits else (), shape, strict=False)
        fits = fits and all(wanted in (None, extent) for extent, wanted in pairs)
        if not fits or not np.all((array >= least) & (array <= most)):
            extents = ", ".join("any" if each is None else str(each) for each in shape)
            what = "whole numbers" if kind is int else "numbers"
            self.fail(f"{what} of {least:g} to {most:g}, in lists of {extents}")
        return array

    def _array(self, value: Any) -> Any:
        if _excess_of(value):
            self.fail("an array with memory of its own for each number")
        return _array_of(value)


def is_named(value: Any) -> TypeGuard[dict[str, Any]]:
    """Return True for a dict in which a name can be looked up without calling a key."""
    return type(value) is dict and all(type(key) is str for key in value)


def digest(state: Mapping[str, Any]) -> str:
    """Return a number of a state that changes with it, as text.

    Objects that are neither numbers, texts, arrays, tensors nor nests of them count by type only.
    Raises `CheckpointError` where the state has no end, or none in bounded time.
    """
    rest = {name: state[name] for name in state if name != "digest"}
    unspent = rest.get("unspent")
    if is_named(unspent) and type(unspent.get("columns")) is list:
        columns = [each for each in unspent["columns"] if type(each) in (list, dict)]
        rest["unspent"] = {**unspent, "columns": columns}  # the others have a checksum
    return _Digest().of(rest).hex()


class _Digest:
    """The digests of containers, each made of the ones in it."""

    def __init__(self) -> None:
        import hashlib  # slow to import

        self._new = partial(hashlib.blake2b, digest_size=16)
        self._path: list[Any] = []
        self._met: dict[int, tuple[Any, bytes, int]] = {}
        """By id: containers, each with its digest (empty while it is made) and how many values are
        in it, and whatever else takes time."""
        # By id, as neither a type nor a dtype is asked for its hash:
        self._bases: dict[int, Any] = {}
        self._dtypes: dict[int, str] = {}
        self._read: dict[int, int] = {}  # bytes of arrays in each memory
        self._values = 0
        self._repeated = 0.0

    def of(self, given: Any) -> bytes:
        """Return the digest of a container, and of another value what stands for it."""
        self._values += 1
        value, base = given, self._bases.get(id(type(given))) or self._find_base(given)
        if base is object:
            value = plain(given)
            base = _base_of(value, *_WALKED)
        if met := self._met.get(id(value)) or self._met.get(id(given)):
            _, found, values = met
            self._values += values
            self._spend(64 * values)
            return found or self._fail("contains itself")
        if base in (dict, list, tuple):
            return self._of_container(value, base)
        found, size = self._of_other(value, base)
        if size <= LARGE:
            return found
        found = b"#" + self._new(found).digest()
        self._met[id(given)] = given, found, 0
        return found

    def _find_base(self, value: Any) -> Any:
        """Return the type that a value is walked as; object: `plain` may make another one of it."""
        is_numpy = _base_of(value, np.ndarray, np.generic)
        found = None if is_numpy else _base_of(value, *_WALKED)
        self._bases[id(type(value))] = found or object
        return found or object

    def _of_other(self, value: Any, base: Any) -> tuple[bytes, int]:
        """Return what stands for a value without others in it, and how many bytes it took."""
        if base is int:
            text = f"{int.__index__(value):x};"
            return text.encode(), len(text)
        if base in (bytes, bytearray):
            found = bytes(base.__getitem__(value, slice(None)))
            return b"b%d:" % len(found) + found, len(found)
        if base is not None:
            text = f"{base.__repr__(value)};"
            return text.encode("utf-8", "surrogatepass"), len(text)
        self._spend(_excess_of(value))
        array = _array_of(value)
        if array is None or array.dtype.hasobject:
            return f"<{type(value).__qualname__}>".encode(), 0
        self._spend(self._read_again(value) / READS)
        dtype = self._dtypes.get(id(value.dtype))
        if dtype is None:  # a file may make tensors of arrays
            dtype = self._dtypes[id(value.dtype)] = str(value.dtype).removeprefix("torch.")
        checksum = _core.checksum(np.ascontiguousarray(array))
        return f"{dtype}{tuple(value.shape)}{checksum};".encode(), array.nbytes

    def _read_again(self, value: Any) -> int:
        """Return how many bytes of an array or tensor were read before, as views share memory."""
        owner, size = _owner_of(value)
        self._read[owner] = read = self._read.get(owner, 0) + int(value.nbytes)
        return max(0, min(int(value.nbytes), read - size))

    def _of_container(self, value: Any, base: Any) -> bytes:
        if len(self._path) == MOST_DEPTH:
            self._fail(f"is a nest of more than {MOST_DEPTH} containers in each other")
        self._met[id(value)] = value, b"", 0
        before, made, path = self._values, self._new(), self._path
        path.append("a key")
        made.update((b"{%d" if base is dict else b"[%d") % base.__len__(value))
        entries: Any = ((b"", at, each) for at, each in enumerate(base.__iter__(value)))
        if base is dict:
            entries = [(self.of(key), key, each) for key, each in dict.items(value)]
            entries.sort(key=lambda entry: entry[0])  # alike ones stay in their order
        for name, key, each in entries:
            path[-1] = key
            made.update(name + self.of(each))
        path.pop()
        found = b"#" + made.digest()
        self._met[id(value)] = value, found, self._values - before
        return found

    def _spend(self, size: float) -> None:
        self._repeated += size
        if self._repeated > MOST_REPEATED:
            self._fail("holds a tensor without data, or repeats what is in it without end")

    def _fail(self, what: str) -> NoReturn:
        place = "".join(f"[{shown(key)[:40]}]" for key in self._path[:8])
        raise CheckpointError(f"the state{place} {what}")


def plain(value: Any) -> Any:
    """Return an array of a subclass as an array, and what is in a scalar, or in one of no axes."""
    base = _base_of(value, np.ndarray, np.generic)
    if base is np.ndarray and type(value) is not base:  # of a mapped file, say
        value = np.ndarray.view(value, np.ndarray)
    if base is np.generic or (base is np.ndarray and value.ndim == 0):
        return base.item(value)
    if _is_tensor(value) and value.ndim == 0 and not value.is_meta:
        return value.item()
    return value


def shown(value: Any) -> str:
    """Return a number or a short text as messages show it, and of anything else its type."""
    return repr(value) if is_scalar(value) else f"a {type(value).__name__}"


def is_scalar(value: Any) -> bool:
    """Return True for None, and for a number or text of a size that options have."""
    small = is_of(value, int) and value.bit_length() <= 64
    return (
        small
        or (is_of(value, str) and len(value) <= 2**16)
        or is_of(value, bool, float, type(None))
    )


def is_of(value: Any, *kinds: type) -> bool:
    """Return True if a value is of one of these types itself, without asking it or its class."""
    return any(type(value) is kind for kind in kinds)


def _base_of(value: Any, *kinds: Any) -> Any:
    """Return the first of these types that a value is of, without asking it; None if it is none."""
    return next((kind for kind in kinds if issubclass(type(value), kind)), None)


def _is_tensor(value: Any) -> bool:
    """Return True for a tensor of dense numbers; one of a subclass may do anything."""
    torch = sys.modules.get("torch")
    if torch is None or type(value) is not torch.Tensor:
        return False
    return value.layout == torch.strided and not (value.is_nested or value.is_quantized)


def _excess_of(value: Any) -> float:
    """Return by how many bytes an array or tensor is larger than the memory that it lies in."""
    if _is_tensor(value):
        if value.is_meta:
            return math.inf
        unit, strides = value.itemsize, value.stride()
    elif type(value) is np.ndarray:
        unit, strides = 1, value.strides
    else:
        return 0
    pairs = zip(value.shape, strides, strict=True)
    span = value.itemsize + unit * sum((extent - 1) * abs(stride) for extent, stride in pairs)
    return max(0, value.nbytes - span) if value.nbytes else 0


def _owner_of(value: Any) -> tuple[int, int]:
    """Return a number of the memory that an array or tensor is a view of, and its bytes."""
    if type(value) is not np.ndarray:
        storage = value.untyped_storage()
        return storage.data_ptr(), storage.nbytes()
    owner: Any = value
    while type(owner) is np.ndarray and owner.base is not None:
        owner = owner.base
        owner = owner.obj if type(owner) is memoryview else owner
    if type(owner) in (bytes, bytearray):
        return id(owner), len(owner)
    return id(owner), owner.nbytes if type(owner) is np.ndarray else value.nbytes


def _array_of(value: Any) -> Any:
    """Return an array, or a tensor as one; its bytes, where NumPy lacks its dtype. Else None."""
    if not _is_tensor(value):
        return value if type(value) is np.ndarray else None
    if value.numel() == 0:  # which may have strides that no view can have
        value = value.new_empty(value.shape)
    value = value.detach().cpu().resolve_conj().resolve_neg()
    try:
        return value.numpy()
    except TypeError:
        torch = sys.modules["torch"]
        return value.reshape(-1).contiguous().view(torch.uint8).numpy()
