"""The loader for PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

try:
    import torch
except ImportError as error:
    raise ImportError('pyecho.torch needs PyTorch: pip install "pyecho[torch]"') from error

import pyecho
from pyecho._core import ConfigError
from pyecho.adapter import Adapter
from pyecho.spec import Field, array_field

__all__ = ["EchoLoader"]

_SAME_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}


def as_array(leaf: Any) -> Any:
    """Return a tensor or array as an ndarray that shares its memory, None for anything else.

    A dtype that NumPy does not have (bfloat16, float8) becomes a record dtype of its own, named
    after it, so that it cannot be taken for another of the same size.
    """
    if isinstance(leaf, np.ndarray):
        return leaf
    if not isinstance(leaf, torch.Tensor):
        return None
    if leaf.device.type != "cpu" or leaf.layout != torch.strided or leaf.is_quantized:
        raise ConfigError(
            f"the source yields a {leaf.layout} tensor on {leaf.device}, but pyecho stores dense "
            "tensors in host memory; convert it in the source (.cpu(), .to_dense(), .dequantize())"
        )
    tensor = leaf.detach().resolve_conj().resolve_neg()
    try:
        return tensor.numpy()
    except TypeError:
        storage = tensor.contiguous().view(_SAME_SIZE[tensor.element_size()]).numpy()
        return storage.view(_record_dtype(tensor.dtype))


def _record_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    return np.dtype([(str(dtype).removeprefix("torch."), f"V{dtype.itemsize}")])


def _torch_dtype(dtype: np.dtype[Any]) -> torch.dtype | None:
    """Return the torch dtype that a record dtype stands for, None for any other."""
    if dtype.names is None or len(dtype.names) != 1:
        return None
    found = getattr(torch, dtype.names[0], None)
    return found if isinstance(found, torch.dtype) and _record_dtype(found) == dtype else None


def field_of(leaf: Any) -> Field:
    """Describe a leaf: a tensor, or what NumPy takes for an array."""
    array = as_array(leaf)
    return array_field(leaf if array is None else array)


def _to_tensor(array: Any) -> torch.Tensor:
    dtype = _torch_dtype(array.dtype)
    if dtype is None:
        return torch.from_numpy(array)
    storage = array.view(torch.empty((), dtype=_SAME_SIZE[dtype.itemsize]).numpy().dtype)
    return torch.from_numpy(storage).view(dtype)


def decoder(fields: list[Field]) -> Callable[[Any, int], Any] | None:
    """Batches arrive as arrays and are handed out as tensors on the same memory."""
    for field in fields:
        if not field.by_reference:
            try:
                _to_tensor(np.empty((1, *field.shape), field.dtype))
            except (TypeError, ValueError) as error:  # ValueError: a foreign byte order
                raise ConfigError(
                    f"PyTorch has no tensors of dtype {field.dtype}; convert it in the source, "
                    "or use pyecho.EchoLoader, which yields NumPy arrays"
                ) from error

    def decode(array: Any, leaf: int) -> torch.Tensor:
        return _to_tensor(array)

    return decode


class EchoLoader(pyecho.EchoLoader):
    """A `pyecho.EchoLoader` whose batches are torch tensors.

    Arguments, methods and order of the output are those of `pyecho.EchoLoader`. In example echoing
    tensors, arrays and numbers of the examples arrive as tensors in host memory, with their dtype;
    every batch is private and writable. In batch echoing items pass through as they are, and a
    tensor that was changed in place between two uses raises `EchoMutated`.

    Raises
    ------
    ConfigError
        Also if the source yields tensors that are not dense tensors in host memory, or arrays
        whose dtype torch does not have.
    """

    _adapter = Adapter(field_of=field_of, as_array=as_array, decoder=decoder)
