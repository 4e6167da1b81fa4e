"""The loader for PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

try:
    import torch
except ImportError as error:
    raise ImportError("pyecho.torch needs PyTorch: pip install torch") from error

import pyecho
from pyecho._core import ConfigError
from pyecho.config import Options
from pyecho.device.memory import pinned_bytes
from pyecho.device.stages import DeviceStages
from pyecho.device.torch import WORDS, cuda_device, require_dense
from pyecho.device.upload import Uploader
from pyecho.loader import with_options
from pyecho.run import Run
from pyecho.spec import Adapter, Field

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["EchoLoader"]


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
    dtype = _torch_dtype(array.dtype)
    if isinstance(array.base, torch.Tensor):  # pinned, and PyTorch knows copies by the storage
        block, found = array.base, dtype or torch.from_numpy(array[:0]).dtype
        begin = array.__array_interface__["data"][0] - block.data_ptr()
        return block[begin : begin + array.nbytes].view(found).view(array.shape)
    if dtype is None:
        return torch.from_numpy(array)
    storage = array.view(torch.empty((), dtype=WORDS[dtype.itemsize]).numpy().dtype)
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
        return torch.from_numpy(array)

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


class EchoLoader(pyecho.EchoLoader):
    """A `pyecho.EchoLoader` whose batches are torch tensors, on the host or on a CUDA device.

    Arguments, methods and order of the output are those of `pyecho.EchoLoader`. In example echoing
    tensors, arrays and numbers of the examples arrive as tensors with their dtype; every batch is
    private and writable. In batch echoing items pass through as they are, and a tensor that was
    changed in place between two uses raises `EchoMutated`.

    With a `device`, batches are copied there while the consumer computes, on a stream of pyecho's;
    the stream that is current when a batch is taken waits for it, the host does not. What is not a
    tensor or array stays as it is, and so does `EchoInfo`; in batch echoing also arrays of which
    torch has no dtype (foreign byte order, dates, strings, records), and tensors that are on a
    device already.

    Parameters
    ----------
    device
        Where batches go: ``"cuda:0"``, its number, or a `torch.device`; None or ``"cpu"`` leaves
        them on the host.
    echo_on
        Example echoing on a device: ``"host"`` assembles batches in pinned memory and copies every
        batch; ``"device"`` copies every example once into a pool on the device and assembles the
        same batches there. Batch echoing copies every item once in any case.
    device_dtype
        What tensors of uint8 or floating point numbers with axes of their own (batches of images,
        not of labels) are converted to, on the device: smaller ones cross the link.

    Raises
    ------
    ConfigError
        Also if `device` is no CUDA device of this machine; in example echoing, if the source yields
        tensors that are not dense tensors in host memory, or arrays whose dtype torch does not
        have; in batch echoing with a `device`, if it yields masked arrays, or tensors in host
        memory that are not dense.
    CudaError
        If `device` is a CUDA device and CUDA is missing.
    """

    _adapter = TorchAdapter()

    @with_options
    def __init__(
        self,
        source: Any,
        factor: float = 2,
        *,
        device: Any = None,
        echo_on: Literal["host", "device"] = "host",
        device_dtype: torch.dtype | None = None,
        **options: Unpack[Options],
    ) -> None:
        if echo_on not in ("host", "device"):
            raise ConfigError(f"echo_on must be 'host' or 'device', got {echo_on!r}")
        if device_dtype is not None and not isinstance(device_dtype, torch.dtype):
            raise ConfigError(f"device_dtype must be a torch.dtype or None, got {device_dtype!r}")
        self._device = cuda_device(device)
        self._echo_on = echo_on
        self._device_dtype = device_dtype
        super().__init__(source, factor, **options)
        self._warn_of_batches_of_batches()
        self._check_device_options()

    def _new_run(self) -> Run:
        if self._device is None:
            return super()._new_run()
        make_stages = partial(
            DeviceStages,
            adapter=self._adapter,
            uploader=Uploader(self._device, self._device_dtype),
            echo_on_device=self._echo_on == "device",
        )
        return Run(self._source, self._config, make_stages, by_consumer=False)

    def _warn_of_batches_of_batches(self) -> None:
        source, config = self._source.object, self._config
        if (
            isinstance(source, torch.utils.data.DataLoader)
            and source.batch_size is not None
            and config.batch_size is not None
            and not config.unbatch
        ):
            warnings.warn(
                f"the DataLoader yields batches (of {source.batch_size}), and batch_size="
                f"{config.batch_size} makes batches of them; pass unbatch=True to build new "
                "batches from their examples, or leave out batch_size to echo them as they are",
                UserWarning,
                stacklevel=3,
            )

    def _check_device_options(self) -> None:
        on_device = self._echo_on == "device"
        for name, is_set in (
            ("echo_on='device'", on_device),
            ("device_dtype", self._device_dtype is not None),
        ):
            if is_set and self._device is None:
                raise ConfigError(f"{name} needs a device, such as device='cuda'")
        if on_device and self._config.batch_size is None:
            raise ConfigError(
                "echo_on='device' echoes examples, so it needs a batch_size; batch echoing copies "
                "every item once without it"
            )
        for name in ("augment", "collate_fn"):
            if on_device and getattr(self._config, name) is not None:
                raise ConfigError(
                    f"{name} works on batches in host memory, and with echo_on='device' there are "
                    "none; augment on the device after the loader, or use echo_on='host'"
                )
