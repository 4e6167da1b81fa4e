"""The leaves of a batch, as tensors in one block of memory, and such blocks.

Leaves are no views of it: views share a counter of changes, so that a change of one leaf would make
autograd refuse the others.

Both are made by `_core.TorchFunctions`, which keeps the GIL, or lets go of it once for many blocks.
Where a build of PyTorch lacks the functions that it calls, methods of tensors do.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from pyecho import _core
from pyecho.device.tensors import is_image

ALIGNMENT = 64
"""Blocks are multiples of this, so that they can be viewed as any dtype; leaves begin at such."""


class Leaf(NamedTuple):
    """The place of a leaf in a block."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    begin: int  # in bytes

    @property
    def size_bytes(self) -> int:
        """Bytes of its elements, which lie side by side."""
        return math.prod(self.shape) * self.dtype.itemsize


def leaf_of(dtype: torch.dtype, shape: Sequence[int], begin: int = 0) -> Leaf:
    """Return a leaf in C order."""
    strides = [math.prod(shape[axis:]) for axis in range(1, len(shape) + 1)]
    return Leaf(dtype, tuple(shape), tuple(strides), begin)


def leaves_of_rows(columns: Sequence[tuple[torch.dtype, Sequence[int]]], rows: int) -> list[Leaf]:
    """Return so many rows of columns of a dtype, and a shape of a row, one after the other."""
    leaves, end = [], 0
    for dtype, shape in columns:
        leaves.append(leaf_of(dtype, (rows, *shape), end))
        end += aligned(leaves[-1].size_bytes)
    return leaves


def size_of(leaves: Sequence[Leaf]) -> int:
    """Return the size of a block with these leaves, in bytes."""
    return max((aligned(leaf.begin + leaf.size_bytes) for leaf in leaves), default=0)


def aligned(size_bytes: int) -> int:
    """Return a size that can be viewed as any dtype."""
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT


def leaves_in(memory: _core.TorchMemory | torch.Tensor, leaves: Sequence[Leaf]) -> list[Any]:
    """Return leaves in this memory; a tensor is one of bytes."""
    found, codes = functions(), [_code(leaf.dtype) for leaf in leaves]
    if type(memory) is torch.Tensor and found is not None:  # subclasses would be lost
        memory = _core.TorchMemory(found, memory)
    parts: list[Any] = [
        (code, shape, strides, begin // dtype.itemsize)
        for code, (dtype, shape, strides, begin) in zip(codes, leaves, strict=True)
    ]
    if isinstance(memory, _core.TorchMemory) and None not in codes:
        return memory.parts(parts)
    tensor = tensor_of(memory)
    return [
        tensor.view(leaf.dtype).as_strided(*where).data
        for leaf, (_, *where) in zip(leaves, parts, strict=True)
    ]


def tensor_of(memory: _core.TorchMemory | torch.Tensor) -> torch.Tensor:
    """Return the bytes of memory."""
    tensor: torch.Tensor = memory.tensor() if isinstance(memory, _core.TorchMemory) else memory
    return tensor


class Conversion:
    """Of neighbouring images of one dtype at a time, by one kernel for all of them.

    `leaves`: of a block. `after`: where they are in the new block, None for those that stay in the
    old one.
    """

    def __init__(self, leaves: Sequence[Leaf], dtype: torch.dtype | None) -> None:
        self.after: list[Leaf | None] = [None] * len(leaves)
        self.size_bytes = 0  # of the new block
        self.kept_bytes = 0  # of all leaves, once converted
        self._dtype = dtype
        self._runs: list[list[Leaf]] = []
        before: Leaf | None = None  # the leaf before, if it is converted
        for number, leaf in enumerate(leaves):
            self.kept_bytes += leaf.size_bytes
            if dtype is None or leaf.dtype == dtype or not is_image(leaf.dtype, len(leaf.shape)):
                before = None
                continue
            if before is None or before.dtype != leaf.dtype:
                self._runs.append([])
                first, to = leaf.begin, self.size_bytes
            begin = to + (leaf.begin - first) // leaf.dtype.itemsize * dtype.itemsize
            self.after[number] = after = leaf._replace(dtype=dtype, begin=begin)
            self.kept_bytes += after.size_bytes - leaf.size_bytes
            self._runs[-1].append(leaf)
            self.size_bytes = aligned(begin + after.size_bytes)
            before = leaf

    def run(self, memory: _core.TorchMemory | torch.Tensor, into: Any) -> None:
        """Convert from a block to new memory, on the current stream."""
        dtype, to = self._dtype, 0
        assert dtype is not None
        for run in self._runs:
            source = run[0].dtype
            end = run[-1].begin + run[-1].size_bytes
            count = (end - run[0].begin) // source.itemsize
            begins = run[0].begin // source.itemsize, to // dtype.itemsize
            to = aligned(to + count * dtype.itemsize)
            codes = _code(source), _code(dtype)
            if isinstance(memory, _core.TorchMemory) and None not in codes:
                memory.convert(into, count, codes, begins)  # type: ignore[arg-type]
                continue
            tensors = tensor_of(memory).view(source), tensor_of(into).view(dtype)
            old, new = (
                tensor.narrow(0, begin, count)
                for tensor, begin in zip(tensors, begins, strict=True)
            )
            new.copy_(old)


@lru_cache(maxsize=16)
def conversion_of(leaves: tuple[Leaf, ...], dtype: torch.dtype | None) -> Conversion:
    """Return the conversion of leaves."""
    return Conversion(leaves, dtype)


def new_memory(count: int, size_bytes: int, device: torch.device) -> list[Any]:
    """Return at most so many blocks on a CUDA device, and one at least, of the current stream.

    Lets go of the GIL, once, because the allocator may wait for the device.
    """
    found, code = functions(), _code(torch.uint8)
    with torch.inference_mode(False):  # what is made in it cannot be written to outside of it
        if found is None or code is None:
            return [_empty(size_bytes, device)]
        made = found.new_memory(count, size_bytes, code, _CUDA, device.index)
        if not made:  # says why, if it fails again
            made = [_core.TorchMemory(found, _empty(size_bytes, device))]
    return made


def _empty(size_bytes: int, device: torch.device) -> torch.Tensor:
    return torch.empty(size_bytes, dtype=torch.uint8, device=device)


_CUDA = 1  # c10::DeviceType::CUDA
_NAMES = (
    "empty_strided",
    "view_dtype",
    "_reinterpret_tensor",
    "new_tensor_handle",
    "get_data_ptr",
    "delete_tensor_object",
    "copy_",
)
"""The functions of `_core.TorchFunctions`, in its order."""


@cache
def functions() -> _core.TorchFunctions | None:
    """Return the functions, None if this build of PyTorch has not all of them."""
    try:
        addresses = [
            ctypes.cast(getattr(_library(), f"aoti_torch_{name}"), ctypes.c_void_p).value or 0
            for name in _NAMES
        ]
        handle_of = torch._C._aoti.unsafe_alloc_void_ptr_from_tensor
        tensors_of = torch._C._aoti.alloc_tensors_by_stealing_from_void_ptrs
        return _core.TorchFunctions(addresses, handle_of, tensors_of)
    except (OSError, AttributeError):
        return None


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(str(Path(torch.__file__).parent / "lib/libtorch_cpu.so"))


@cache
def _code(dtype: torch.dtype) -> int | None:
    """Return the number of a dtype for the functions, None if this build does not know it."""
    name = str(dtype).removeprefix("torch.")
    try:
        return int(getattr(_library(), f"aoti_torch_dtype_{name}")())
    except (OSError, AttributeError):
        return None
