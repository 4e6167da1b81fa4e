"""Outputs that stay where they are, for CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pyecho._core import SpecMismatch
from pyecho.items.nest import map_paths

IsThere = Callable[[Any], bool]
"""Returns True for a tensor on the device."""


class FixedOutputs:
    """The same tensors for every batch, into which each is copied on the consumer's stream.

    So a batch is overwritten only after everything that this stream has to do with the one before.
    For one consumer at a time.
    """

    def __init__(self) -> None:
        self._like: dict[str, tuple[torch.Size, torch.dtype]] = {}  # by path in the first batch
        self._outputs: dict[str, torch.Tensor] = {}
        self._streams: list[Any] = []  # of the first batch, and of the last one

    def check(self, item: Any, is_there: IsThere) -> None:
        """Raise `SpecMismatch` unless a batch is like the first one. In the thread that made it."""
        found: dict[str, tuple[torch.Size, torch.dtype]] = {}

        def note(path: str, leaf: Any) -> Any:
            if is_there(leaf):
                found[path] = (leaf.shape, leaf.dtype)
            return leaf

        map_paths(note, item)
        self._like = self._like or found
        for path in self._like | found:
            first, now = (_described(like.get(path)) for like in (self._like, found))
            if first != now:
                raise SpecMismatch(
                    f"{path}: static=True fills the tensors of the first batch, which had {first} "
                    f"here, and a batch has {now}; have the source yield items that are alike, or "
                    "pad them"
                )

    def fill(self, item: Any, is_there: IsThere, stream: Any) -> Any:
        """Return an item that was checked, with outputs in place of its tensors; never blocks.

        `stream` is the calling thread's current one; None on devices without streams.
        """
        if stream is not None:
            if self._streams and stream != self._streams[1]:
                stream.wait_stream(self._streams[1])
            self._streams = [*(self._streams or [stream])[:1], stream]

        def output(path: str, leaf: Any) -> Any:
            if not is_there(leaf):
                return leaf
            if path not in self._outputs:
                self._outputs[path] = torch.empty_like(leaf)
            if stream is not None and stream != self._streams[0]:
                self._outputs[path].record_stream(stream)
            return self._outputs[path].copy_(leaf)

        with torch.inference_mode(False), torch.no_grad():
            return map_paths(output, item)


def _described(like: tuple[torch.Size, torch.dtype] | None) -> str:
    return "no tensor on the device" if like is None else f"{like[1]} of shape {tuple(like[0])}"
