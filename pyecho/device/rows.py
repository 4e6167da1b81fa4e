"""Examples that a source makes on the device."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from pyecho._core import SpecMismatch
from pyecho.device.tensors import TICKET
from pyecho.device.upload import Uploader
from pyecho.nest import leaves_of, map_nest
from pyecho.sharing import path_to


class _Deposit(NamedTuple):
    """What an item had on the device."""

    begin: int  # ticket of its first row
    tensors: list[torch.Tensor]  # each of some rows, as many
    arrival: Any


class DeviceRows:
    """Keeps the rows that a source makes on the device, while tickets stand for them on the host.

    The native stage, which collects examples in chunks, carries the tickets: numbers that count the
    rows. The rows themselves wait here until their chunk is stored.

    Parameters
    ----------
    first
        The first item.
    batched
        Whether items are batches of examples.
    """

    def __init__(self, uploader: Uploader, first: Any, *, batched: bool) -> None:
        self._uploader = uploader
        self._batched = batched
        self._like = [(_row_of(leaf, batched).shape, leaf.dtype) for leaf in self._there(first)]
        self._deposits: deque[_Deposit] = deque()
        self._next = 0

    def __bool__(self) -> bool:
        """Return True if the source makes anything on the device."""
        return bool(self._like)

    @property
    def row_bytes(self) -> int:
        """Bytes on the device for each example."""
        return sum(shape.numel() * dtype.itemsize for shape, dtype in self._like)

    def clear(self) -> None:
        """Drop all rows. Nobody is at work."""
        self._deposits.clear()

    def _there(self, item: Any) -> list[torch.Tensor]:
        return [leaf for leaf in leaves_of(item) if self._uploader.is_there(leaf)]

    # ------------------------------------------------------------ the feeder

    def deposit(self, item: Any) -> Any:
        """Take the tensors of an item that are on the device, and return it with tickets there.

        Raises `SpecMismatch` if they are not like those of the first item.
        """
        tensors = self._there(item)
        self._check(item, tensors)
        rows = len(tensors[0]) if self._batched else 1
        begin, self._next = self._next, self._next + rows
        kept = [leaf.detach() if self._batched else leaf.detach()[None] for leaf in tensors]
        self._deposits.append(_Deposit(begin, kept, self._uploader.arrival()))
        tickets = np.arange(begin, begin + rows).view(TICKET)
        ticket = tickets if self._batched else tickets[0]
        return map_nest(lambda leaf: ticket if self._uploader.is_there(leaf) else leaf, item)

    def _check(self, item: Any, tensors: list[torch.Tensor]) -> None:
        device = self._uploader.device
        if len(tensors) != len(self._like):
            raise SpecMismatch(
                f"the first item had {len(self._like)} tensors on {device}, and this one has "
                f"{len(tensors)}; have the source keep each leaf in one place"
            )
        rows = {len(leaf) for leaf in tensors} if self._batched else {1}
        for leaf, (shape, dtype) in zip(tensors, self._like, strict=True):
            found = _row_of(leaf, self._batched)
            if (found.shape, found.dtype) != (shape, dtype) or len(rows) > 1:
                raise SpecMismatch(
                    f"{path_to(item, leaf)}: expected {dtype} of shape {tuple(shape)} for each "
                    f"example on {device}, as in the first item, and as many examples in each "
                    f"tensor; got {leaf.dtype} of shape {tuple(leaf.shape)}"
                )

    # ------------------------------------------------------------ the thread that stores chunks

    def collect(self, tickets: torch.Tensor) -> Iterator[torch.Tensor]:
        """Return the rows for the tickets of a chunk, tensor by tensor; see `Uploader.computing`.

        Tickets come in order. Rows that were skipped are dropped.
        """
        first, end = int(tickets[0]), int(tickets[-1]) + 1
        parts: list[list[torch.Tensor]] = [[] for _ in self._like]
        while first < end:
            deposit = self._deposits[0]
            rows = len(deposit.tensors[0])
            begin, stop = first - deposit.begin, min(rows, end - deposit.begin)
            if begin < rows:
                self._uploader.follow(deposit.arrival, deposit.tensors)
                for part, tensor in zip(parts, deposit.tensors, strict=True):
                    part.append(tensor[begin:stop])
                first = deposit.begin + stop
            if stop == rows:
                self._deposits.popleft()
        return map(torch.cat, parts)


def _row_of(leaf: torch.Tensor, batched: bool) -> torch.Tensor:
    """Return the first example of a leaf, or what stands for it if there is none."""
    return leaf.new_empty(leaf.shape[1:], device="meta") if batched else leaf
