"""Outputs that stay where they are, for CUDA graphs."""

from __future__ import annotations

from typing import Any

import torch

from pyecho._core import SpecMismatch
from pyecho.nest import map_nest
from pyecho.sharing import path_to


class FixedOutputs:
    """The same tensors for every batch, into which each is copied on the consumer's stream.

    So a batch is overwritten only after everything that this stream has to do with the one before.
    For one consumer at a time.
    """

    def __init__(self) -> None:
        self._outputs: list[torch.Tensor] = []
        self._stream: Any = None  # of the last batch

    def fill(self, item: Any, tensors: list[torch.Tensor], stream: Any) -> Any:
        """Return the item, with an output in place of each of its `tensors`; never blocks.

        `stream` is the calling thread's current one; None on devices without streams. Raises
        `SpecMismatch` if a tensor is not like the one of the first batch.
        """
        with torch.inference_mode(False), torch.no_grad():
            if not self._outputs:
                self._outputs = [torch.empty_like(tensor) for tensor in tensors]
            self._check(item, tensors)
            if stream is not None and self._stream is not None and stream != self._stream:
                stream.wait_stream(self._stream)
            self._stream = stream
            for output, tensor in zip(self._outputs, tensors, strict=True):
                output.copy_(tensor)
        places = {id(tensor): place for tensor, place in zip(tensors, self._outputs, strict=True)}
        return map_nest(lambda leaf: places.get(id(leaf), leaf), item)

    def _check(self, item: Any, tensors: list[torch.Tensor]) -> None:
        if len(tensors) != len(self._outputs):
            raise SpecMismatch(
                f"static=True fills {len(self._outputs)} tensors, as many as the first batch had, "
                f"and this one has {len(tensors)}; have the source yield items that are alike"
            )
        for output, tensor in zip(self._outputs, tensors, strict=True):
            if (output.shape, output.dtype) != (tensor.shape, tensor.dtype):
                raise SpecMismatch(
                    f"{path_to(item, tensor)}: static=True fills the tensor of the first batch, "
                    f"{output.dtype} of shape {tuple(output.shape)}, but a batch has "
                    f"{tensor.dtype} of shape {tuple(tensor.shape)}; have the source yield items "
                    "that are alike, or pad them"
                )
