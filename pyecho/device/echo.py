"""The echo pool on a device: examples cross the link once, batches are made over there."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from pyecho._core import BatchPlan, Closed
from pyecho.buffer import EchoInfo
from pyecho.device.upload import DeviceArrays, Uploaded, Uploader
from pyecho.nest import leaves_like, leaves_of, map_nest
from pyecho.spec import Field

__all__ = ["DeviceEcho", "EchoArrays"]


class EchoArrays(DeviceArrays, Protocol):
    """Device arrays that an echo pool can be made of; it computes on pyecho's stream."""

    def pool(self, slots: int, like: Any) -> Any:
        """Allocate a pool of `slots` rows such as those of the device array `like`."""

    def store(self, pool: Any, index: Any, rows: Any) -> None:
        """Do ``pool[index] = rows``."""

    def gather(self, pool: Any, index: Any, like: Any) -> Any:
        """Return ``pool[index]``, a new array with rows such as those of `like`."""


class _Column:
    """One leaf of all resident examples: rows on the device, or references in a list."""

    def __init__(self, arrays: EchoArrays, slots: int, *, by_reference: bool) -> None:
        self._arrays = arrays
        self._slots = slots
        self._pool: Any = [None] * slots if by_reference else None
        self._by_reference = by_reference
        self._like: Any = None

    def store(self, slots: Any, index: Any, rows: Any) -> None:
        """Store rows; `index` is `slots` on the device."""
        if self._by_reference:
            for slot, row in zip(slots, rows, strict=True):
                self._pool[slot] = row
            return
        if self._pool is None:
            self._pool = self._arrays.pool(self._slots, rows)
            self._like = rows
        self._arrays.store(self._pool, index, rows)

    def gather(self, slots: Any, index: Any) -> Any:
        """Return the rows of a batch."""
        if self._by_reference:
            return [self._pool[slot] for slot in slots]
        return self._arrays.gather(self._pool, index, self._like)


class _Chunk(NamedTuple):
    """Examples that are on the device, or on their way, and not stored yet."""

    slots: Any
    columns: list[Any]


class DeviceEcho:
    """Makes batches on a device, of chunks of examples that a native stage collects on the host.

    All of it happens in the order of pyecho's stream: chunks of fresh examples are copied from
    pinned memory, scattered into the slots that the plan gives them, and batches are gathered from
    slots. A slot that is stored to again after its last use needs no other protection.

    It is what a link takes from (`pyecho.link.Upstream`): `_take` returns a batch and the number of
    its rows.

    Parameters
    ----------
    spec
        Of one example.
    staging
        The native stage: its batches are chunks of consecutive examples.
    plan
        Decides which example goes into which slot, and which slots make up a batch.
    arrays
        The device arrays that batches are made of.
    uploader
        Brings chunks to the device.
    with_info
        Whether batches come with an `EchoInfo`.
    """

    def __init__(
        self,
        spec: Any,
        staging: Any,
        plan: BatchPlan,
        arrays: EchoArrays,
        uploader: Uploader,
        *,
        with_info: bool,
    ) -> None:
        self._spec = spec
        self._staging = staging
        self._plan = plan
        self._arrays = arrays
        self._uploader = uploader
        self._with_info = with_info
        self._fields: list[Field] = leaves_of(spec)
        self._columns = [
            _Column(arrays, plan.slots, by_reference=field.by_reference) for field in self._fields
        ]
        self._chunks: list[_Chunk] = []
        self._failure: BaseException | None = None
        self._emitted = 0

    def begin(self, epoch: int, items: int | None) -> None:
        """Start again with this epoch."""
        self._plan.begin(epoch, items)
        self._chunks.clear()
        self._failure = None

    @property
    def emitted(self) -> int:
        """Rows that were handed to the consumer."""
        return self._emitted

    @property
    def resident(self) -> int:
        """Examples in the pool."""
        return self._plan.resident

    @property
    def _at_end(self) -> bool:
        return self._plan.at_end

    def _set_paused(self, paused: bool) -> None:
        self._staging._set_paused(paused)

    def _take(self) -> Uploaded:
        """Return the next batch; raise `StopIteration` at the end of an epoch.

        What the staging raises is raised after every use of what came before it, unless it is
        `Closed` or something of the device fails meanwhile.
        """
        while (complete := self._plan.advance()) is not None:
            if complete:
                batch = self._batch()
                if batch is None:
                    continue  # too short for drop_last
                return batch
            try:
                chunk = self._staging._take()
            except StopIteration:
                if self._staging._at_end:
                    self._plan.end_input()
                else:
                    self._plan.end_pass()
                continue
            except Closed:
                raise  # the loader is stopped or paused
            except BaseException as error:
                self._failure = error
                self._plan.end_input()
                continue
            self._receive(chunk)
            del chunk
        failure, self._failure = self._failure, None
        if failure is not None and self._plan.at_end:
            try:
                raise failure
            finally:
                del failure  # its traceback has this frame
        raise StopIteration

    def deliver(self, uploaded: Uploaded, number: int, use: int) -> Any:
        """Return a batch, fit for the calling thread's current stream. Never blocks."""
        (batch, info), rows = self._uploader.deliver(uploaded)
        self._emitted += rows
        return batch if info is None else (batch, info)

    def _receive(self, chunk: Any) -> None:
        columns = leaves_like(self._spec, chunk)
        uploaded = self._uploader.copy(
            [
                () if field.by_reference else column
                for field, column in zip(self._fields, columns, strict=True)
            ]
        )
        self._chunks.append(
            _Chunk(
                self._plan.offer(len(columns[0])),
                [
                    column if field.by_reference else on_device
                    for field, column, on_device in zip(
                        self._fields, columns, uploaded.item, strict=True
                    )
                ],
            )
        )

    def _batch(self) -> Uploaded | None:
        slots, source_index, use = self._plan.take()
        stored = [chunk.slots for chunk in self._chunks]
        index = self._uploader.copy(np.concatenate([*stored, slots])).item
        self._store(index)
        if len(slots) == 0:
            return None
        device_slots = index[len(index) - len(slots) :]
        columns = [
            column if field.by_reference else self._arrays.convert(column)
            for field, column in zip(
                self._fields,
                (column.gather(slots, device_slots) for column in self._columns),
                strict=True,
            )
        ]
        on_device = [
            column
            for field, column in zip(self._fields, columns, strict=True)
            if not field.by_reference
        ]
        leaves = iter(columns)
        batch = map_nest(lambda _: next(leaves), self._spec)
        info = EchoInfo(source_index, use) if self._with_info else None
        return self._uploader.computed(((batch, info), len(slots)), on_device)

    def _store(self, index: Any) -> None:
        """Store the examples that came since the last batch; `index` begins with their slots."""
        done = 0
        for slots, columns in self._chunks:
            end = done + len(slots)
            for column, rows in zip(self._columns, columns, strict=True):
                column.store(slots, index[done:end], rows)
            done = end
        self._chunks.clear()
