"""Items on their way to a device: what crosses of them, and where it is."""

from __future__ import annotations

import sys
from contextlib import suppress
from itertools import islice
from typing import Any

import torch

from pyecho._core import ConfigError
from pyecho.device.leaves import Leaf, tensor_of
from pyecho.device.pinned import Mark, Packed
from pyecho.items.nest import flatten
from pyecho.items.spec import EchoInfo
from pyecho.items.tensordicts import TensorDictNode

_PLACE = object()
"""Stands for a leaf until it is on the device."""


class Crossing:
    """An item that crosses, or has crossed."""

    copies: Any = None  # the stream of the copy, once there may be one

    def __init__(self, leaves: list[Any], structure: Any, info: EchoInfo | None = None) -> None:
        self.leaves = leaves
        self.places: list[tuple[int, int]] = []  # of those that cross, and of how many parts each
        self.structure = structure
        self.info = info  # of a batch
        self.parts: list[Leaf] = []  # in the block
        self.converts = True
        self.packed: Packed | None = None  # until it is taken
        self.memory: Any = None  # on the device, likewise
        self.stream: Any = None  # of the memory
        self.arrived: Mark | None = None  # behind what fills the memory
        self.foreign: list[torch.Tensor] = []  # that are on the device already
        self.made: Mark | None = None  # behind what makes these
        self.item: Any = None  # once it was taken
        self.guards: list[Any] = []

    def __del__(self) -> None:
        """Have PyTorch keep memory on the device that a copy may still fill."""
        if self.copies is None or self.memory is None or sys.is_finalizing():
            return
        with suppress(RuntimeError):  # the device has failed
            tensor_of(self.memory).record_stream(self.copies)
            if self.packed is not None and self.packed.is_pinned:
                self.packed.memory.leave(self.packed.block)

    def forget(self) -> None:
        """Drop the host's memory of what crosses, of which the structure has some."""
        leaves = self.leaves.copy()
        typed = any(isinstance(node, TensorDictNode) for node in self.structure.nodes())
        for number, _ in self.places:
            leaves[number] = torch.empty_like(leaves[number], device="meta") if typed else _PLACE
        with suppress(ConfigError):  # a node that cannot be made of them keeps the memory
            self.leaves, self.structure = flatten(self.structure.unflatten(leaves))

    def item_of(self, tensors: list[Any]) -> Any:
        """Return the item with these tensors for its parts."""
        leaves, parts = self.leaves.copy(), iter(tensors)
        for number, count in self.places:
            some = list(islice(parts, count))
            one = count == 1
            leaves[number] = some[0] if one else torch.nested.nested_tensor_from_jagged(*some)
        return self.structure.unflatten(leaves)
