"""The echo pool on a device: examples cross the link once, batches are made over there."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch

from pyecho._core import BatchPlan, Closed, CudaError
from pyecho.buffer import EchoInfo
from pyecho.device.rows import DeviceRows
from pyecho.device.tensors import TICKET, WORDS
from pyecho.device.upload import Uploaded, Uploader
from pyecho.nest import leaves_like, leaves_of, map_nest
from pyecho.tracing import span


class Gathered(NamedTuple):
    """A batch that was made on the device."""

    batch: Any
    info: EchoInfo
    rows: int


class DeviceEcho:
    """Makes batches on a device, of chunks of examples that a native stage collects on the host.

    All of it happens in the order of pyecho's stream: chunks of fresh examples are copied from
    pinned memory, scattered into the slots that the plan gives them, and batches are gathered from
    slots. A slot that is stored to again after its last use needs no other protection.

    A link takes from it: the link's thread calls `_take`, and `finish` with what that returns.

    Parameters
    ----------
    spec
        Of one example.
    staging
        The native stage: its batches are chunks of consecutive examples.
    plan
        Decides which example goes into which slot, and which slots make up a batch.
    uploader
        Brings chunks to the device; the link's thread is in its `computing`.
    rows
        Rows made by the source on the device.
    with_info
        Whether batches come with an `EchoInfo`.
    """

    def __init__(
        self,
        spec: Any,
        staging: Any,
        plan: BatchPlan,
        uploader: Uploader,
        rows: DeviceRows,
        *,
        with_info: bool,
    ) -> None:
        self._spec = spec
        self._staging = staging
        self.plan = plan
        self._uploader = uploader
        self._rows = rows
        self._on_device = [field.dtype == TICKET for field in leaves_of(spec)]
        self._with_info = with_info
        # A column is one leaf of several examples: a tensor, or a list if it travels by reference.
        self._chunks: list[tuple[Any, list[Any]]] = []  # slots and columns, not stored yet
        self._pools: list[Any] = []  # for each column, of rows or references, by slot
        self._like: list[Any] = []  # columns with rows such as those of the pools
        self._failure: BaseException | None = None
        self.emitted = 0
        """Rows that were handed to the consumer."""

    def begin(self, epoch: int, items: int | None) -> None:
        """Start again with this epoch."""
        self.plan.begin(epoch, items)
        self._chunks.clear()
        self._rows.clear()
        self._failure = None

    @property
    def _at_end(self) -> bool:
        return self.plan.at_end

    def _set_paused(self, paused: bool) -> None:
        self._staging._set_paused(paused)

    def _take(self) -> Gathered:
        """Return the next batch; raise `StopIteration` at the end of an epoch.

        An error of the source is raised after every use of the items before it, unless the device
        fails meanwhile.
        """
        while (complete := self.plan.advance()) is not None:
            if complete:
                batch = self._batch()
                if batch is None:
                    continue  # too short for drop_last
                return batch
            try:
                chunk = self._staging._take()
            except StopIteration:
                if self._staging._at_end:
                    self.plan.end_input()
                else:
                    self.plan.end_pass()
                continue
            except (Closed, CudaError):
                raise  # the loader is stopped or paused; or no chunk can be pinned
            except BaseException as error:
                self._failure = error
                self.plan.end_input()
                continue
            with span("upload"), torch.inference_mode(False), torch.no_grad():
                self._receive(chunk)  # the pool outlives both
            del chunk
        failure, self._failure = self._failure, None
        if failure is not None and self.plan.at_end:
            try:
                raise failure
            finally:
                del failure  # its traceback has this frame
        raise StopIteration

    def finish(self, gathered: Gathered, epoch: int, number: int) -> tuple[Uploaded, EchoInfo, int]:
        """Finish a batch, of this number in its epoch, for `deliver`."""
        return self._uploader.finish(gathered.batch, epoch, number), gathered.info, gathered.rows

    def deliver(self, finished: tuple[Uploaded, EchoInfo, int], number: int, use: int) -> Any:
        """Return a batch, fit for the calling thread's current stream. Never blocks."""
        uploaded, info, rows = finished
        batch = self._uploader.deliver(uploaded)
        self.emitted += rows
        return (batch, info) if self._with_info else batch

    def _receive(self, chunk: Any) -> None:
        leaves = leaves_like(self._spec, chunk)
        rows = len(leaves[0])
        tickets = next(
            (leaf for leaf, there in zip(leaves, self._on_device, strict=True) if there), None
        )
        made = iter(()) if tickets is None else self._rows.collect(tickets)
        columns = [
            next(made) if there else leaf if isinstance(leaf, list) else self._uploader.copy(leaf)
            for leaf, there in zip(leaves, self._on_device, strict=True)
        ]
        if not self._pools:
            self._like = columns
            self._pools = [_pool(self.plan.slots, column) for column in columns]
        self._chunks.append((self.plan.offer(rows), columns))

    def _batch(self) -> Gathered | None:
        slots, source_index, use = self.plan.take()
        stored = [slots for slots, _ in self._chunks]
        index = self._uploader.copy(np.concatenate([*stored, slots]))
        assert index is not None
        with torch.inference_mode(False), torch.no_grad():
            self._store(index)
        if len(slots) == 0:
            return None
        rows = index[-len(slots) :]
        columns = iter(
            [pool[slot] for slot in slots]
            if isinstance(pool, list)
            else _from_words(pool.index_select(0, rows), like)
            for pool, like in zip(self._pools, self._like, strict=True)
        )
        batch = map_nest(lambda _: next(columns), self._spec)
        return Gathered(batch, EchoInfo(source_index, use), len(slots))

    def _store(self, index: Any) -> None:
        """Store the examples that came since the last batch; `index` begins with their slots."""
        for slots, columns in self._chunks:
            rows = len(slots)
            for pool, column in zip(self._pools, columns, strict=True):
                if isinstance(pool, list):
                    for slot, row in zip(slots, column, strict=True):
                        pool[slot] = row
                else:
                    pool.index_copy_(0, index[:rows], _as_words(column))
            index = index[rows:]
        self._chunks.clear()


def _pool(slots: int, column: Any) -> Any:
    """Return a pool of references, or of words as wide as the rows of a tensor allow."""
    if isinstance(column, list):
        return [None] * slots
    words = _as_words(column)
    return torch.empty((slots, words.shape[1]), dtype=words.dtype, device=words.device)


def _as_words(rows: torch.Tensor) -> torch.Tensor:
    """Return rows of any dtype as rows of words on the same memory, the wider the fewer to move."""
    flat = rows.reshape(len(rows), rows[0].numel())
    row_bytes = flat.shape[1] * rows.element_size()
    if row_bytes == 0:
        return flat
    return flat.view(WORDS[math.gcd(row_bytes, 8)])


def _from_words(words: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return rows of words as rows with the shape and dtype of those of `like`."""
    return words.view(like.dtype).reshape(len(words), *like.shape[1:])
