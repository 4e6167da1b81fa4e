"""CUDA tensors, as the device side of the loader for PyTorch sees them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from pyecho import cuda
from pyecho._core import ConfigError, CudaError, cuda_relax_capture


def cuda_device(device: Any) -> torch.device | None:
    """Return the CUDA device that a loader's `device` names; None for the host.

    Raises `ConfigError` for another kind of device and for one that is not there, `CudaError` where
    CUDA is missing.
    """
    if device is None:
        return None
    found = _named_device(device)
    if found is not None and found.type == "cpu":
        return None
    if found is None or found.type != "cuda":
        raise ConfigError(
            f"device must be a CUDA device or the CPU, got {device!r}; pass 'cuda', 'cuda:0', the "
            "number of a device, a torch.device, or None to leave batches on the host"
        )
    reason = cuda.why_not()
    if not reason and not torch.cuda.is_available():
        reason = (
            f"this build of PyTorch ({torch.__version__}) cannot use it; install one with CUDA "
            "from pytorch.org"
        )
    if reason:
        raise CudaError(f"device={str(found)!r} needs CUDA: {reason}")
    index = torch.cuda.current_device() if found.index is None else found.index
    count = cuda.device_count()
    if index >= count:
        raise ConfigError(
            f"device={str(found)!r} is not there: this process sees {count} CUDA "
            f"device{'s' * (count != 1)}, numbered from 0; pass one of them, or make more visible "
            "(CUDA_VISIBLE_DEVICES)"
        )
    return torch.device("cuda", index)


def _named_device(device: Any) -> torch.device | None:
    """Return the device that `device` names, None if it names none."""
    if isinstance(device, bool):
        return None
    try:
        if not isinstance(device, int | np.integer):
            return torch.device(device)
        # One of CUDA's, whatever this build of PyTorch prefers; numbers that are too large wrap.
        found = torch.device("cuda", int(device))
        return found if found.index == device else None
    except (RuntimeError, TypeError, ValueError, OverflowError):
        return None


class TorchDevice:
    """CUDA tensors: makes and computes them.

    They are allocated by PyTorch for pyecho's stream; `hand_over` lets PyTorch keep their memory
    until the consumer's stream is done with them. On further streams of the consumer's the usual
    rule holds: ``tensor.record_stream(stream)``.
    """

    def __init__(
        self,
        device: torch.device,  # of CUDA, with its number
        dtype: torch.dtype | None,  # `convert` makes this of images; None: leaves them as they are
    ) -> None:
        self._device = device
        self._dtype = dtype
        self._stream: Any = None
        self.ordinal: int = device.index

    def compute_on(self, stream: int) -> None:
        """Allocate and compute on `stream`, pyecho's own, from now on."""
        external: Any = torch.cuda.ExternalStream  # untyped in PyTorch
        self._stream = external(stream, device=self._device)

    def place(self, leaf: Any) -> tuple[Any, int, torch.Tensor] | None:
        """Allocate a tensor like a host tensor or array; None for everything else.

        Returns what keeps the host memory alive, the address of that memory, and the tensor.
        """
        if isinstance(leaf, torch.Tensor):
            if leaf.device.type != "cpu":
                return None
            require_dense(leaf)
            source: Any = leaf.detach().resolve_conj().resolve_neg().contiguous()
            return source, source.data_ptr(), self._empty(source.shape, source.dtype)
        if isinstance(leaf, np.ndarray):
            dtype = _dtype_of(leaf.dtype)
            if dtype is None:
                return None
            if isinstance(leaf, np.ma.MaskedArray):
                raise ConfigError(
                    "masked arrays would lose their mask in a batch; use .filled(), or pass data "
                    "and mask"
                )
            source = np.ascontiguousarray(leaf)
            return source, source.ctypes.data, self._empty(leaf.shape, dtype)
        return None

    def convert(self, tensor: torch.Tensor) -> torch.Tensor:
        """Convert images, waves and the like: uint8 and floats, with axes beside the batch's."""
        numeric = tensor.dtype == torch.uint8 or tensor.dtype.is_floating_point
        if self._dtype is None or tensor.ndim < 2 or not numeric:
            return tensor
        with self._computing():
            return tensor.to(self._dtype)

    def current_stream(self) -> int:
        """Return the calling thread's current stream."""
        return int(torch.cuda.current_stream(self._device).cuda_stream)

    def hand_over(self, tensor: torch.Tensor) -> None:
        """Have PyTorch keep the memory until the thread's current stream is done with it."""
        tensor.record_stream(torch.cuda.current_stream(self._device))

    def pool(self, slots: int, like: torch.Tensor) -> torch.Tensor:
        """Allocate a pool of words, as wide as the rows of `like` allow."""
        words = as_words(like)
        return self._empty((slots, words.shape[1]), words.dtype)

    def store(self, pool: torch.Tensor, index: torch.Tensor, rows: torch.Tensor) -> None:
        """Do ``pool[index] = rows``."""
        with self._computing():
            pool.index_copy_(0, index, as_words(rows))

    def gather(self, pool: torch.Tensor, index: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """Return ``pool[index]``, a new tensor with rows such as those of `like`."""
        with self._computing():
            words = torch.index_select(pool, 0, index)
            return words.view(like.dtype).reshape(len(words), *like.shape[1:])

    def _empty(self, shape: Any, dtype: torch.dtype) -> torch.Tensor:
        with self._computing():
            return torch.empty(shape, dtype=dtype, device=self._device)

    @contextmanager
    def _computing(self) -> Iterator[None]:
        # In threads of pyecho's only. PyTorch may allocate, which would end a capture elsewhere;
        # and leaving a stream of another device would make a context on the thread's device 0.
        cuda_relax_capture()
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            yield


def require_dense(tensor: torch.Tensor) -> None:
    """Raise `ConfigError` unless the tensor is dense numbers in host memory."""
    if tensor.is_nested:
        kind = "a nested tensor"
    elif tensor.is_quantized:
        kind = "a quantized tensor"
    elif tensor.layout != torch.strided or tensor.device.type != "cpu":
        kind = f"a {tensor.layout} tensor on {tensor.device}"
    else:
        return
    raise ConfigError(
        f"the source yields {kind}, but pyecho copies dense tensors in host memory; convert it in "
        "the source (.cpu(), .to_dense(), .dequantize(), torch.nested.to_padded_tensor())"
    )


def _dtype_of(dtype: np.dtype[Any]) -> torch.dtype | None:
    """Return the torch dtype for a NumPy one, None if there is none."""
    try:
        return torch.from_numpy(np.empty(0, dtype)).dtype
    except (TypeError, ValueError):  # ValueError: a foreign byte order
        return None


WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}
"""A dtype that every operation knows, by its size in bytes."""


def as_words(rows: torch.Tensor) -> torch.Tensor:
    """Return rows of any dtype as rows of words on the same memory, the wider the fewer to move."""
    flat = rows.reshape(len(rows), rows[0].numel())
    row_bytes = flat.shape[1] * rows.element_size()
    if row_bytes == 0:
        return flat
    return flat.view(WORDS[math.gcd(row_bytes, 8)])
