"""Leaves of items, as PyTorch sees them: tensors in host memory, and rows as bytes and words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from pyecho._core import ConfigError

WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}
"""A dtype that every operation knows, by its size in bytes."""

TICKET = np.dtype([("row_on_the_device", np.int64)])
"""Stands on the host for examples that the source has made on the device."""


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


def require_dense(tensor: torch.Tensor) -> None:
    """Raise `ConfigError` unless the tensor is dense numbers in host memory."""
    require_strided(tensor)
    if tensor.device.type != "cpu":
        raise ConfigError(
            f"the source yields a tensor on {tensor.device}, but this loader makes batches of "
            "tensors in host memory; move it in the source (.cpu()), or, if it is on the loader's "
            "device in every item, pass echo_on='device'"
        )


def host_tensor(leaf: Any) -> torch.Tensor | None:
    """Return a tensor or array in host memory as a tensor on it; None for everything else."""
    if isinstance(leaf, torch.Tensor):
        require_strided(leaf)
        if leaf.device.type != "cpu":
            return None
        return leaf.detach().resolve_conj().resolve_neg()
    if not isinstance(leaf, np.ndarray):
        return None
    try:
        torch.from_numpy(np.empty(0, leaf.dtype))
    except (TypeError, ValueError):  # no such dtype; ValueError: a foreign byte order
        return None
    if isinstance(leaf, np.ma.MaskedArray):
        raise ConfigError(
            "masked arrays would lose their mask in a batch; use .filled(), or pass data and mask"
        )
    # PyTorch warns of read-only arrays, and filters of warnings are shared by all threads.
    array = np.require(leaf, requirements=("C", "W"))
    return torch.from_numpy(array)


def bytes_of_rows(rows: torch.Tensor) -> Any:
    """Return rows as an array of the bytes of each, in host memory."""
    shape = (len(rows), rows.shape[1:].numel() * rows.element_size())
    if rows.numel() == 0:
        return np.empty(shape, np.uint8)
    return rows.cpu().contiguous().reshape(-1).view(torch.uint8).reshape(shape).numpy()


def as_words(rows: torch.Tensor) -> torch.Tensor:
    """Return rows of any dtype as rows of words on the same memory, the wider the fewer to move."""
    flat = rows.reshape(len(rows), rows[0].numel())
    row_bytes = flat.shape[1] * rows.element_size()
    if row_bytes == 0:
        return flat
    return flat.view(WORDS[math.gcd(row_bytes, 8)])


def from_words(words: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return rows of words as rows with the shape and dtype of those of `like`."""
    return words.view(like.dtype).reshape(len(words), *like.shape[1:])
