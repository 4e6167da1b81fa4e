"""Leaves of items, and what a batch says of its rows.

Adapters decide what counts as an array; nests are the same for all (`pyecho.items.nest`).
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from pyecho._core import ConfigError
from pyecho.checked import checked_int, plain

if TYPE_CHECKING:
    from numpy.typing import NDArray


class EchoInfo(NamedTuple):
    """The items of a batch, row by row."""

    source_index: NDArray[np.int64]
    """Number of the item in source order, from 0."""
    use: NDArray[np.int32]
    """Number of the use of this item; 0 is the fresh one."""


BFLOAT16 = np.dtype([("bfloat16", "V2")])
"""Stands for bfloat16 where arrays of PyTorch's tensors are shown to NumPy, which has none."""


def is_bfloat16(dtype: np.dtype[Any]) -> bool:
    """Return True for `BFLOAT16`, and for the dtype of ml_dtypes."""
    return bool(dtype == BFLOAT16 or dtype.name == "bfloat16")


def _dtype_of(given: Any) -> np.dtype[Any]:
    """Return the dtype that is given: as NumPy knows it, PyTorch's, or bfloat16 by its name."""
    if isinstance(given, np.dtype):
        return given
    name = str(given).removeprefix("torch.")
    if name == "bfloat16":
        return BFLOAT16
    return np.dtype(name if type(given).__module__ == "torch" else given)


def _plain_pad(pad: Any) -> Any:
    """Return a number as Python's, as an int where it is a small whole one."""
    value: Any = plain(pad)
    if not isinstance(value, int | float | complex):
        raise ConfigError(f"pad must be a number, got {pad!r}")
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return value if str(value) == "-0.0" else int(value)
    return value


@dataclass(frozen=True, init=False)
class Field:
    """One leaf of an example: its shape and dtype.

    Parameters
    ----------
    shape
        Shape of one example, without a batch axis; an int means one axis. None stands for an extent
        that differs from example to example: memory then follows what examples hold.
    dtype
        Anything `numpy.dtype` accepts. `object` (with shape ``()``) stands for a leaf that travels
        by reference, such as a str; it arrives as a list.
    max_bytes
        Most bytes of one example; needed where the shape has None.
    pad
        Where the shape has None: fill the rows of a batch up to its largest with this number. The
        batch then has a `Padded` there, not a `Ragged`.
    """

    shape: tuple[Any, ...]  # of ints, and None
    dtype: np.dtype[Any]
    max_bytes: int | None
    pad: float | complex | None
    seen: str | None = field(compare=False, repr=False)
    """Name of the type that an example has here if it is no array, and then no example may have
    one; None if any object will do."""

    def __init__(
        self,
        shape: int | tuple[int | None, ...] | None,
        dtype: Any,
        max_bytes: int | None = None,
        pad: float | complex | None = None,
    ) -> None:
        extents = tuple(
            None if extent is None else checked_int("an extent of a shape", extent, 0, 2**62)
            for extent in (shape if isinstance(shape, Iterable) else (shape,))
        )
        try:
            parsed = _dtype_of(dtype)
        except TypeError as error:
            raise ConfigError(f"a Field needs a dtype that NumPy knows, got {dtype!r}") from error
        number, varies = None if pad is None else _plain_pad(pad), None in extents
        if parsed.hasobject and (extents or parsed != np.dtype(object)):
            raise ConfigError(
                f"dtype {parsed} holds Python objects, which travel by reference: "
                "use Field((), object), or a dtype of plain numbers"
            )
        if varies != (max_bytes is not None) or (pad is not None and not varies):
            raise ConfigError(
                "a Field whose shape has None needs max_bytes, the most that one example has, and "
                f"may have pad; any other has neither, got the shape {extents} with "
                f"max_bytes={max_bytes!r} and pad={pad!r}"
            )
        if max_bytes is not None:
            max_bytes = checked_int("max_bytes", max_bytes, 1, 2**48)
        vars(self).update(shape=extents, dtype=parsed, max_bytes=max_bytes, pad=number, seen=None)

    @property
    def by_reference(self) -> bool:
        """True if the leaf travels as a Python reference."""
        return bool(self.dtype == object)

    @property
    def varies(self) -> bool:
        """True if examples differ in size."""
        return None in self.shape

    @property
    def size_bytes(self) -> int:
        """Bytes of an example, or the most that it has."""
        return self.max_bytes or self.dtype.itemsize * math.prod(self.shape)

    def takes(self, other: Field) -> bool:
        """Return True if an example with a leaf of this field, whose shape is known, fits."""
        are_bfloat16 = is_bfloat16(self.dtype) and is_bfloat16(other.dtype)
        if len(self.shape) != len(other.shape) or not (self.dtype == other.dtype or are_bfloat16):
            return False
        extents = zip(self.shape, other.shape, strict=True)
        return all(wanted in (None, extent) for wanted, extent in extents)


class Ragged(NamedTuple):
    """The rows of a leaf whose examples differ in size: their elements, one row after the other."""

    values: Any
    """The elements, an array of one axis."""
    offsets: Any
    """The begin of each row in `values`, and the end of the last: int64 (B + 1,)."""
    shapes: Any
    """The shape of each row: int64 (B, axes)."""

    def row(self, index: int) -> Any:
        """Return one row, a view of `values` in its shape; -1 is the last."""
        index = range(len(self.shapes))[index]
        begin, end = int(self.offsets[index]), int(self.offsets[index + 1])
        return self.values[begin:end].reshape(tuple(map(int, self.shapes[index])))


class Padded(NamedTuple):
    """The rows of a leaf whose examples differ in size, filled up to the largest of the batch."""

    values: Any
    """The rows, with a leading batch axis."""
    lengths: Any
    """The extent of each row where it varies: int64 (B,); (B, n) if n axes vary."""


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
        try:  # a third of what DLPack takes for tensors
            return plain_tensor(leaf).numpy() if is_tensor(leaf) else np.from_dlpack(leaf)
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

    def dtype_named(self, name: str) -> np.dtype[Any]:
        """Return the dtype of rows that operations have made numbers of this name."""
        if name != "bfloat16":
            return np.dtype(name)
        try:
            import ml_dtypes
        except ImportError:
            raise ConfigError(
                "NumPy has no bfloat16 without ml_dtypes; pip install ml_dtypes, use "
                "pyecho.torch.EchoLoader, or another dtype"
            ) from None
        return np.dtype(ml_dtypes.bfloat16)  # type: ignore[no-any-return]

    def ragged(self, field: Field, values: Any, offsets: Any, shapes: Any) -> Any:
        """Return what the consumer gets for the rows of a leaf whose examples differ in size."""
        return Ragged(values, offsets, shapes)

    def numbers(self, array: Any) -> Any:
        """Return an array of whole numbers as the consumer gets it."""
        return array

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
        vars(reference)["seen"] = type(leaf).__name__
        return reference


NUMPY = Adapter()


def is_tensor(leaf: Any) -> bool:
    """Return True if `leaf` is a torch tensor; does not import torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(leaf, torch.Tensor)


def refuse_masked(array: Any) -> None:
    """Raise `ConfigError` for a masked array."""
    if isinstance(array, np.ma.MaskedArray):
        raise ConfigError(
            "masked arrays would lose their mask in a batch; use .filled(), or pass data and mask"
        )


def plain_tensor(tensor: Any) -> Any:
    """Return a tensor without its graph, whose memory has its numbers, not their negatives."""
    if tensor.requires_grad or tensor.is_conj() or tensor.is_neg():
        return tensor.detach().resolve_conj().resolve_neg()
    return tensor


def is_tensor_dict(value: Any) -> bool:
    """Return True for a TensorDict or tensorclass, except one around an object of Python's."""
    tensordict = sys.modules.get("tensordict")
    is_one = getattr(tensordict, "is_tensor_collection", None)  # None while it is being imported
    return is_one is not None and is_one(value) and not tensordict.is_non_tensor(value)  # type: ignore[union-attr]
