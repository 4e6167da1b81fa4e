"""The leaves of a batch, as tensors in one block of memory, and such blocks.

Leaves are no views of it: views share a counter of changes, so that a change of one leaf would make
autograd refuse the others.

Both are made by `_core.TorchFunctions`, which keeps the GIL, or lets go of it once for many blocks.
Where a build of PyTorch lacks the functions that it calls, methods of tensors make leaves, and
batches are sent by a Python thread.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from pyecho import _core

ALIGNMENT = 64
"""Blocks are multiples of this, so that they can be viewed as any dtype; leaves begin at such."""


class Leaf(NamedTuple):
    """The place of the rows of a leaf in a block."""

    dtype: torch.dtype
    shape: tuple[int, ...]  # of a row
    strides: tuple[int, ...]  # of a batch
    begin: int  # in bytes

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return math.prod(self.shape) * self.dtype.itemsize


def leaf_of(dtype: torch.dtype, shape: Sequence[int], begin: int = 0) -> Leaf:
    """Return a leaf whose elements lie side by side."""
    strides = [math.prod(shape[axis:]) for axis in range(len(shape) + 1)]
    return Leaf(dtype, tuple(shape), tuple(strides), begin)


def aligned(size_bytes: int) -> int:
    """Return a size that can be viewed as any dtype."""
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT


def leaves_in(
    memory: _core.TorchMemory | torch.Tensor, leaves: Sequence[Leaf], rows: int
) -> list[torch.Tensor]:
    """Return the first rows of each leaf in this memory; a tensor is one of bytes."""
    found, codes = functions(), [_code(leaf.dtype) for leaf in leaves]
    if type(memory) is torch.Tensor and found is not None:  # subclasses would be lost
        memory = _core.TorchMemory(found, memory)
    parts: list[Any] = [
        (code, (rows, *shape), strides, begin // dtype.itemsize)
        for code, (dtype, shape, strides, begin) in zip(codes, leaves, strict=True)
    ]
    if isinstance(memory, _core.TorchMemory) and None not in codes:
        return memory.parts(parts)
    tensor = memory.tensor() if isinstance(memory, _core.TorchMemory) else memory
    return [
        tensor.view(leaf.dtype).as_strided(*where).data
        for leaf, (_, *where) in zip(leaves, parts, strict=True)
    ]


def new_memory(count: int, size_bytes: int, device: torch.device) -> list[_core.TorchMemory]:
    """Return at most so many blocks on a CUDA device, and one at least, of the current stream.

    Lets go of the GIL, once, because the allocator may wait for the device.
    """
    found, code = functions(), _code(torch.uint8)
    assert found is not None
    assert code is not None
    with torch.inference_mode(False):  # what is made in it cannot be written to outside of it
        made = found.new_memory(count, size_bytes, code, _CUDA, device.index)
        if not made:  # says why, if it fails again
            one = torch.empty(size_bytes, dtype=torch.uint8, device=device)
            made = [_core.TorchMemory(found, one)]
    return made


_CUDA = 1  # c10::DeviceType::CUDA
_NAMES = (
    "empty_strided",
    "view_dtype",
    "_reinterpret_tensor",
    "new_tensor_handle",
    "get_data_ptr",
    "delete_tensor_object",
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
