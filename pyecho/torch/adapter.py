"""Tensors in the place of NumPy's arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from pyecho._core import ConfigError
from pyecho.device.memory import pinned_bytes
from pyecho.device.tensors import TICKET, WORDS, require_dense
from pyecho.items.spec import Adapter, Field


def _record_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    return np.dtype([(str(dtype).removeprefix("torch."), f"V{dtype.itemsize}")])


def _torch_dtype(dtype: np.dtype[Any]) -> torch.dtype | None:
    """Return the torch dtype that a record dtype, or one of ml_dtypes, stands for; else None."""
    if dtype.names is not None and len(dtype.names) == 1:
        found = getattr(torch, dtype.names[0], None)
        same = isinstance(found, torch.dtype) and _record_dtype(found) == dtype
    else:
        found = getattr(torch, dtype.name, None) if dtype.type.__module__ == "ml_dtypes" else None
        same = isinstance(found, torch.dtype) and found.is_floating_point
    return found if same else None


def _to_tensor(array: Any) -> torch.Tensor:
    if array.dtype == TICKET:
        return torch.from_numpy(array.view(np.int64))
    dtype = _torch_dtype(array.dtype)
    if isinstance(array.base, torch.Tensor):  # pinned, and PyTorch knows copies by the storage
        block, found = array.base, dtype or torch.from_numpy(array[:0]).dtype
        begin = array.__array_interface__["data"][0] - block.data_ptr()
        return block[begin : begin + array.nbytes].view(found).view(array.shape)
    if dtype is None:
        return torch.from_numpy(array)
    storage = array.view(torch.empty((), dtype=WORDS[dtype.itemsize], device="cpu").numpy().dtype)
    return torch.from_numpy(storage).view(dtype)


class TorchAdapter(Adapter):
    """Tensors: a batch arrives as arrays, and is handed out as tensors on the same memory."""

    allocate = staticmethod(pinned_bytes)

    def as_array(self, leaf: Any) -> Any:
        """Return a tensor or array as an ndarray that shares its memory, None for anything else.

        A dtype that NumPy does not have (bfloat16, float8) becomes a record dtype of its own, named
        after it, so that it cannot be taken for another of the same size.
        """
        if not isinstance(leaf, torch.Tensor):
            return super().as_array(leaf)
        require_dense(leaf)
        tensor = leaf.detach().resolve_conj().resolve_neg()
        try:
            return tensor.numpy()
        except TypeError:
            storage = tensor.view(WORDS[tensor.element_size()]).numpy()
            return storage.view(_record_dtype(tensor.dtype))

    def saved(self, array: Any) -> torch.Tensor:
        """Return a tensor, since ``torch.load(weights_only=True)`` refuses arrays."""
        tensor = torch.from_numpy(array)
        # torch.save() takes storages at one address for one, and empty ones may share theirs.
        return tensor if array.size else torch.empty(array.shape, dtype=tensor.dtype)

    def decoder(self, fields: list[Field]) -> Callable[[Any, int], Any]:
        """Return what makes tensors of arrays."""
        for field in fields:
            if not field.by_reference:
                try:
                    _to_tensor(np.empty((1, *field.shape), field.dtype))
                except (TypeError, ValueError) as error:  # ValueError: a foreign byte order
                    raise ConfigError(
                        f"PyTorch has no tensors of dtype {field.dtype}; convert it in the source, "
                        "or use pyecho.EchoLoader, which yields NumPy arrays"
                    ) from error
        return lambda array, leaf: _to_tensor(array)
