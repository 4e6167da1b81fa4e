"""Examples that a source makes on the device."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from pyecho._core import ConfigError, EchoMutated, SpecMismatch
from pyecho.device.tensors import TICKET, require_strided
from pyecho.device.upload import Mark, Uploader
from pyecho.items.nest import map_paths
from pyecho.items.spec import Field


class _Deposit(NamedTuple):
    """The tensors of an item on the device."""

    begin: int  # ticket of its first row
    tensors: list[torch.Tensor]  # each of some rows, as many
    versions: list[int]  # which tell of changes in place
    arrival: Mark | None

    @property
    def end(self) -> int:
        """Ticket after its last row."""
        return self.begin + len(self.tensors[0])


class DeviceRows:
    """Keeps the rows that a source makes on the device, while tickets stand for them on the host.

    The native stage, which collects examples in chunks, carries the tickets: numbers that count the
    rows. The rows themselves wait here until their chunk is stored. `batched`: items are batches of
    examples.
    """

    def __init__(self, uploader: Uploader, first: Any, *, batched: bool) -> None:
        self._uploader = uploader
        self.batched = batched
        self._like = {
            path: (leaf.shape[batched:], leaf.dtype) for path, leaf in self._there(first).items()
        }
        self._deposits: deque[_Deposit] = deque()
        self._next = 0

    def __bool__(self) -> bool:
        """Return True if the source makes anything on the device."""
        return bool(self._like)

    def spec(self, spec: Any, field_of: Callable[[Any], Field]) -> Any:
        """Return a spec with the fields of the rows in the places of their tickets."""
        like = {
            path: field_of(torch.empty(shape, dtype=dtype, device="cpu"))
            for path, (shape, dtype) in self._like.items()
        }
        return map_paths(lambda path, field: like.get(path, field), spec)

    def _there(self, item: Any) -> dict[str, torch.Tensor]:
        """Return the tensors of an item that are on the device, by their paths."""
        found: dict[str, torch.Tensor] = {}

        def note(path: str, leaf: Any) -> Any:
            if self._uploader.is_there(leaf):
                require_strided(leaf)
                found[path] = leaf
            return leaf

        map_paths(note, item)
        return found

    # ------------------------------------------------------------ the feeder

    def deposit(self, item: Any) -> Any:
        """Take the tensors of an item that are on the device, and return it with tickets there.

        Raises `SpecMismatch` if they are not like those of the first item.
        """
        there = self._there(item)
        rows = self._checked_rows(there)
        begin, self._next = self._next, self._next + rows
        tensors = [there[path].detach() for path in self._like]
        kept = tensors if self.batched else [tensor[None] for tensor in tensors]
        arrival = self._uploader.arrival()
        self._deposits.append(_Deposit(begin, kept, list(map(_version_of, kept)), arrival))
        tickets = np.arange(begin, begin + rows).view(TICKET)
        ticket = tickets if self.batched else tickets[0]
        return map_paths(lambda path, leaf: ticket if path in there else leaf, item)

    def _checked_rows(self, there: dict[str, torch.Tensor]) -> int:
        """Return the number of rows of each tensor."""
        rows = None
        for path in self._like | there:
            leaf = there.get(path)
            if path not in self._like or leaf is None:
                places = ("on the device", "elsewhere")
                was, now = places if leaf is None else reversed(places)
                raise SpecMismatch(
                    f"{path}: the first item had its tensor {was} ({self._uploader.device}), and "
                    f"this one has it {now}; have the source keep each leaf in one place"
                )
            shape, dtype = self._like[path]
            if self.batched and leaf.ndim == 0:
                raise ConfigError(
                    f"{path}: unbatch=True cannot split a tensor without axes into rows; give it a "
                    "batch axis, or drop it in the source"
                )
            if (leaf.shape[self.batched :], leaf.dtype) != (shape, dtype):
                raise SpecMismatch(
                    f"{path}: expected {dtype} of shape {tuple(shape)} for each example on "
                    f"{self._uploader.device}, as in the first item, got {leaf.dtype} of shape "
                    f"{tuple(leaf.shape[self.batched :])}"
                )
            count = len(leaf) if self.batched else 1
            rows = count if rows is None else rows
            if count != rows:
                raise SpecMismatch(f"{path}: has {count} rows, but a tensor before it has {rows}")
        return rows or 0

    # ------------------------------------------------------------ the thread that stores chunks

    def collect(self, tickets: Any, *, keep: bool) -> list[torch.Tensor]:
        """Return the rows for the tickets of a chunk, tensor by tensor; see `Uploader.computing`.

        Tickets come in order. Without `keep` these rows are dropped, and those skipped before them.
        Raises `EchoMutated` if a tensor was changed in place meanwhile.
        """
        first, end = int(tickets[0]), int(tickets[-1]) + 1
        parts: list[list[torch.Tensor]] = [[] for _ in self._like]
        for deposit in tuple(self._deposits):  # the feeder adds some
            begin, stop = max(first, deposit.begin), min(end, deposit.end)
            if begin >= stop:
                continue
            for path, tensor, version in zip(
                self._like, deposit.tensors, deposit.versions, strict=True
            ):
                if _version_of(tensor) != version:
                    raise EchoMutated(
                        f"{path}: the source has changed a tensor on {tensor.device} in place "
                        "before it was stored; have it yield new tensors, or clones"
                    )
            self._uploader.follow(deposit.arrival, deposit.tensors)
            for part, tensor in zip(parts, deposit.tensors, strict=True):
                part.append(tensor[begin - deposit.begin : stop - deposit.begin])
        rows = list(map(torch.cat, parts))
        while not keep and self._deposits and self._deposits[0].end <= end:
            self._deposits.popleft()
        return rows


def _version_of(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version
