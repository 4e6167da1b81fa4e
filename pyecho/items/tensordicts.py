"""TensorDicts and tensorclasses as nodes. Nothing here imports tensordict: the program has."""

from __future__ import annotations

import copy
import sys
from typing import Any

import numpy as np

from pyecho.items.nodes import MappingNode, Node
from pyecho.items.spec import Field, is_tensor_dict


class TensorDictNode(MappingNode):
    """A TensorDict or tensorclass. Another one has more batch axes if its children have.

    In a spec the node stands for it, because a TensorDict holds no fields.
    """

    def __init__(self, like: Any) -> None:
        is_class, keys = sys.modules["tensordict"].is_tensorclass(like), tuple(like.keys())
        # Other objects than tensors as they were put into it.
        children = [getattr(like, key) if is_class else like[key] for key in keys]
        Node.__init__(self, like, keys, children)
        self._type: Any = type(like)
        self._size = tuple(like.batch_size)
        self._axes = len(self._size)  # -1 in the spec of a row if the batch has a batch_size of []
        self._axis_names: list[str | None] = list(like.names)
        self._has_device = like.device is not None

    def accepts(self, item: Any) -> bool:
        """Return True for another one, or what stands for it in a spec."""
        return isinstance(item, TensorDictNode) or is_tensor_dict(item)

    def make(self, children: list[Any]) -> Any:
        """Make a TensorDict, or a node for a spec."""
        children = list(map(_as_tensor, children))
        axes, size = self._axes, self._size
        for old, new in zip(self.children, children, strict=True):
            was, now = _axes_of(old), _axes_of(new)
            if was is not None and now is not None:
                axes = self._axes + now - was
                size = tuple(getattr(new, "shape", ()))[: max(0, axes)]
                break
        if not any(isinstance(child, TensorDictNode | np.ndarray | Field) for child in children):
            return self._tensor_dict(children, size)
        node = copy.copy(self)
        node.like, node.children = None, children
        node._axes, node._size = axes, size
        return node

    def _tensor_dict(self, children: list[Any], size: tuple[int, ...]) -> Any:
        tensordict = sys.modules["tensordict"]

        def value(child: Any) -> Any:
            if _axes_of(child) is not None:
                return child
            if size and isinstance(child, list) and len(child) == size[0]:  # one for each row
                rows = [tensordict.NonTensorData(row, batch_size=size[1:]) for row in child]
                return tensordict.NonTensorStack(*rows)
            return tensordict.NonTensorData(child, batch_size=size)

        devices = {child.device for child in children if _axes_of(child) is not None}
        names = [None] * len(size) + self._axis_names
        plain = tensordict.TensorDict(
            dict(zip(self.keys, map(value, children), strict=True)),
            batch_size=size,
            device=devices.pop() if self._has_device and len(devices) == 1 else None,
            names=names[len(names) - len(size) :] if any(self._axis_names) else None,
        )
        is_class = tensordict.is_tensorclass(self._type)
        return self._type.from_tensordict(plain) if is_class else plain


def _as_tensor(child: Any) -> Any:
    """Return an array as a tensor in its memory, if there can be one."""
    if isinstance(child, np.ndarray) and child.flags.writeable:
        try:
            return sys.modules["torch"].from_numpy(child)
        except (TypeError, ValueError):  # a dtype that only NumPy has
            pass
    return child


def _axes_of(child: Any) -> int | None:
    """Return the number of axes of a tensor or field, and of batch axes; None for an object."""
    if isinstance(child, TensorDictNode):
        return child._axes
    if isinstance(child, Field):
        return None if child.by_reference else len(child.shape)
    is_array = isinstance(child, np.ndarray | sys.modules["torch"].Tensor)
    return len(child.shape) if is_array or is_tensor_dict(child) else None
