"""The calling thread's context, carried to the thread that reads the source."""

from __future__ import annotations

import contextvars
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from pyecho.items.nest import leaves_of
from pyecho.warn import outer_place, place_of_caller


class CallerContext:
    """The context of the thread that makes this object, for use in other threads.

    Holds a copy of the context variables (`contextvars`). If PyTorch is imported, also its grad
    mode, inference mode, autocast state (CPU and CUDA), default device and, once CUDA is
    initialised, current CUDA device: PyTorch keeps all of them for each thread. Then what the
    function does on the device does not disturb a CUDA graph that another thread captures.

    Context variables that a function sets are set in the next call of `run`, too. Warnings of
    pyecho point to the line outside of it that made this object.
    """

    def __init__(self) -> None:
        self._variables = contextvars.copy_context()
        self._variables.run(place_of_caller.set, outer_place())
        self._torch = _TorchState() if sys.modules.get("torch") is not None else None

    def run(self, function: Callable[[], Any], fail: Callable[[BaseException], Any]) -> None:
        """Call ``function()`` in this context; if it raises, ``fail(error)`` in the thread's own.

        May be called from several threads, one call at a time.
        """
        try:
            with ExitStack() as stack:
                if self._torch is not None:
                    self._torch.enter(stack)
                self._variables.run(function)
        except BaseException as error:
            fail(error)


class _TorchState:
    """State that PyTorch keeps for each thread, and that a source may depend on."""

    def __init__(self) -> None:
        import torch  # also waits for an import that another thread has begun

        self._grad = torch.is_grad_enabled()
        self._inference = torch.is_inference_mode_enabled()
        self._autocast = {device_type: _autocast(device_type) for device_type in ("cpu", "cuda")}
        self._device = torch.get_default_device()
        cuda_used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        self._cuda = torch.cuda.current_device() if cuda_used else None

    def enter(self, stack: ExitStack) -> None:
        """Set this state in the calling thread until `stack` is closed."""
        import torch

        from pyecho import cuda

        if torch.is_inference_mode_enabled() != self._inference:
            stack.enter_context(torch.inference_mode(self._inference))
        for device_type, state in self._autocast.items():
            if _autocast(device_type) != state:
                stack.enter_context(torch.autocast(device_type, **state))
        if torch.get_default_device() != self._device:
            stack.enter_context(self._device)
        if self._cuda is not None:
            stack.enter_context(torch.cuda.device(self._cuda))
        if torch.cuda.is_initialized() and cuda.is_available():  # type: ignore[no-untyped-call]
            # An allocation of a source may ask the driver for memory, or for events of other
            # streams, either of which would end the capture.
            stack.enter_context(cuda.relaxed_capture())
        # Last and in any case: inference mode changes it, and so may the function.
        stack.enter_context(torch.set_grad_enabled(self._grad))


def finish_on_device(item: Any) -> None:
    """Wait for the calling thread's work on tensors that a thread with another stream will use."""
    torch = sys.modules.get("torch")
    if torch is None:
        return
    for device in {leaf.device for leaf in leaves_of(item) if isinstance(leaf, torch.Tensor)}:
        if device.type == "cuda":
            torch.cuda.current_stream(device).synchronize()


def _autocast(device_type: str) -> dict[str, Any]:
    """Return the arguments of `torch.autocast` for the calling thread's state."""
    import torch

    return {
        "enabled": torch.is_autocast_enabled(device_type),
        "dtype": torch.get_autocast_dtype(device_type),
        "cache_enabled": torch.is_autocast_cache_enabled(),
    }
