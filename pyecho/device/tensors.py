"""PyTorch's tensors in the places of NumPy's arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from pyecho import cuda
from pyecho._core import ConfigError, CudaError
from pyecho.items.spec import Adapter, Field, Ragged, plain_tensor, refuse_masked

WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}
"""A dtype that every operation knows, by its size in bytes."""


class TorchAdapter(Adapter):
    """Tensors: a batch arrives as arrays, and is handed out as tensors on the same memory."""

    @staticmethod
    def allocate(size_bytes: int) -> torch.Tensor:
        """Allocate pinned memory; `CudaError` if there is no more.

        It may be dropped while a copy to a device reads from it: PyTorch's allocator lends it again
        only after the copy.
        """
        try:
            with cuda.relaxed_capture():  # not in a forked child: the allocator may be locked there
                return torch.empty(size_bytes, dtype=torch.uint8, device="cpu", pin_memory=True)
        except CudaError:  # there is no CUDA, or not any more
            raise
        except RuntimeError as error:
            raise CudaError(
                f"no more memory can be pinned ({error}); drop batches you no longer need, give "
                "the machine or container more memory, or pass pin_memory=False"
            ) from error

    def as_array(self, leaf: Any) -> Any:
        """Return a tensor or array as an ndarray that shares its memory, None for anything else.

        A dtype that NumPy does not have (bfloat16, float8) becomes a record dtype of its own, named
        after it, so that it cannot be taken for another of the same size.
        """
        if not isinstance(leaf, torch.Tensor):
            return super().as_array(leaf)
        tensor = host_tensor(leaf)
        if tensor is None:
            raise ConfigError(
                f"the source yields a tensor on {leaf.device}, but batches are made of examples in "
                "host memory; move it in the source (.cpu())"
            )
        try:
            return tensor.numpy()
        except TypeError:
            storage = tensor.view(WORDS[tensor.element_size()]).numpy()
            return storage.view(_record_dtype(tensor.dtype))

    def dtype_named(self, name: str) -> np.dtype[Any]:
        """Return the dtype of rows that operations have made numbers of this name."""
        return _record_dtype(torch.bfloat16) if name == "bfloat16" else np.dtype(name)

    def ragged(self, field: Field, values: Any, offsets: Any, shapes: Any) -> Any:
        """Return a jagged nested tensor where the first axis alone varies, else a `Ragged`."""
        begins, extents = torch.from_numpy(offsets), torch.from_numpy(shapes)
        first, *rest = field.shape
        if first is not None or None in rest:
            return Ragged(values, begins, extents)
        begins = torch.zeros(len(shapes) + 1, dtype=torch.int64, device="cpu")
        torch.cumsum(extents[:, 0], 0, out=begins[1:])
        rows = values.view(int(begins[-1]), *rest)
        return torch.nested.nested_tensor_from_jagged(rows, begins)

    def numbers(self, array: Any) -> torch.Tensor:
        """Return an array of whole numbers as the consumer gets it."""
        return torch.from_numpy(array)

    def saved(self, array: Any) -> torch.Tensor:
        """Return a tensor, since ``torch.load(weights_only=True)`` refuses arrays."""
        tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
        # torch.save() takes storages at one address for one, and empty ones may share theirs.
        return tensor if array.size else torch.empty(array.shape, dtype=tensor.dtype, device="cpu")

    def decoder(self, fields: list[Field]) -> Callable[[Any, int], Any]:
        """Return what makes tensors of arrays."""
        for field in fields:
            if not field.by_reference:
                try:
                    _to_tensor(np.empty(1, field.dtype))
                except (TypeError, ValueError) as error:  # ValueError: a foreign byte order
                    raise ConfigError(
                        f"PyTorch has no tensors of dtype {field.dtype}; convert it in the source, "
                        "or use pyecho.EchoLoader, which yields NumPy arrays"
                    ) from error
        return lambda array, leaf: _to_tensor(array)


def _to_tensor(array: Any) -> torch.Tensor:
    dtype = _torch_dtype(array.dtype)
    if isinstance(array.base, torch.Tensor):  # pinned, and PyTorch knows copies by the storage
        block, found = array.base, dtype or torch.from_numpy(array[:0]).dtype
        begin = array.__array_interface__["data"][0] - block.data_ptr()
        return block[begin : begin + array.nbytes].view(found).view(array.shape)
    if dtype is None:
        return torch.from_numpy(array)
    storage = array.view(torch.empty((), dtype=WORDS[dtype.itemsize], device="cpu").numpy().dtype)
    return torch.from_numpy(storage).view(dtype)


def dtype_of(dtype: np.dtype[Any]) -> torch.dtype:
    """Return the dtype of tensors of a field."""
    return _torch_dtype(dtype) or torch.from_numpy(np.empty(0, dtype)).dtype


def is_jagged(leaf: Any) -> bool:
    """Return True for a jagged tensor without gaps, as `TorchAdapter.ragged` makes it."""
    jagged = isinstance(leaf, torch.Tensor) and leaf.is_nested and leaf.layout == torch.jagged
    return jagged and leaf.lengths() is None


def is_image(dtype: torch.dtype, axes: int) -> bool:
    """Return True for what ``Device(dtype=)`` converts: images and the like, but not labels.

    They are uint8 or floating point numbers, and have axes of their own beside the batch's.
    """
    return axes >= 2 and (dtype == torch.uint8 or dtype.is_floating_point)


def _torch_dtype(dtype: np.dtype[Any]) -> torch.dtype | None:
    """Return the torch dtype that a record dtype, or one of ml_dtypes, stands for; else None."""
    if dtype.names is not None and len(dtype.names) == 1:
        found = getattr(torch, dtype.names[0], None)
        same = isinstance(found, torch.dtype) and _record_dtype(found) == dtype
    else:
        found = getattr(torch, dtype.name, None) if dtype.type.__module__ == "ml_dtypes" else None
        same = isinstance(found, torch.dtype) and found.is_floating_point
    return found if same else None


def _record_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    return np.dtype([(str(dtype).removeprefix("torch."), f"V{dtype.itemsize}")])


def require_strided(tensor: torch.Tensor) -> None:
    """Raise `ConfigError` unless the tensor is dense numbers."""
    if tensor.is_nested:
        kind = "a nested tensor"
    elif tensor.is_quantized:
        kind = "a quantized tensor"
    elif tensor.layout != torch.strided:
        kind = f"a {tensor.layout} tensor"
    else:
        return
    raise ConfigError(
        f"the source yields {kind}, but pyecho copies dense tensors; convert it in the source "
        "(.to_dense(), .dequantize(), torch.nested.to_padded_tensor())"
    )


def host_tensor(leaf: Any) -> torch.Tensor | None:
    """Return a tensor or array in host memory as a tensor on it; None for everything else."""
    if isinstance(leaf, torch.Tensor):
        require_strided(leaf)
        on_host = leaf.device.type == "cpu"
        return plain_tensor(leaf) if on_host else None
    if not isinstance(leaf, np.ndarray):
        return None
    try:
        torch.from_numpy(np.empty(0, leaf.dtype))
    except (TypeError, ValueError):  # no such dtype; ValueError: a foreign byte order
        return None
    refuse_masked(leaf)
    # PyTorch warns of read-only arrays, and filters of warnings are shared by all threads.
    return torch.from_numpy(np.require(leaf, requirements=("C", "W")))
