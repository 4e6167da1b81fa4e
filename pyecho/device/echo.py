"""The echo pool on a device: examples cross the link once, batches are made over there."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Protocol

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


class _Chunk:
    """Examples that are on the device, or on their way, and not all stored yet."""

    def __init__(self, columns: list[Any], rows: int) -> None:
        self.columns = columns
        self.rows = rows
        self.stored = 0


class DeviceEcho:
    """Makes the batches of an epoch on a device.

    All of it happens in the order of pyecho's stream: chunks of fresh examples are copied from
    pinned memory, scattered into the slots that the plan gives them, and batches are gathered from
    slots. A slot that is stored to again after its last use needs no other protection.

    Parameters
    ----------
    spec
        Of one example.
    plan
        Decides which example goes into which slot, and which slots make up a batch.
    slots
        How many slots the plan deals in.
    arrays
        The device arrays that batches are made of.
    uploader
        Brings chunks to the device.
    """

    def __init__(
        self, spec: Any, plan: BatchPlan, slots: int, arrays: EchoArrays, uploader: Uploader
    ) -> None:
        self._spec = spec
        self._plan = plan
        self._arrays = arrays
        self._uploader = uploader
        self._fields: list[Field] = leaves_of(spec)
        self._columns = [
            _Column(arrays, slots, by_reference=field.by_reference) for field in self._fields
        ]
        self._chunks: deque[_Chunk] = deque()
        self._emitted = 0

    @property
    def emitted(self) -> int:
        """Rows that were handed to the consumer."""
        return self._emitted

    @property
    def resident(self) -> int:
        """Examples in the pool."""
        return self._plan.resident

    def batches(self, chunks: Iterator[Any], *, with_info: bool) -> Iterator[Uploaded]:
        """Yield the batches; `chunks` are nests of host arrays with consecutive examples.

        What `chunks` raises is raised after every use of what came before it, unless it is `Closed`
        or something of the device fails meanwhile.
        """
        failure: BaseException | None = None
        while (complete := self._plan.advance()) is not None:
            if complete:
                yield self._batch(with_info=with_info)
                continue
            chunk = None
            try:
                chunk = next(chunks, None)
            except Closed:
                raise  # nobody takes batches any more
            except BaseException as error:
                failure = error
            if chunk is None:
                self._plan.end_of_source()
            else:
                self._receive(chunk)
                del chunk
        if failure is not None:
            try:
                raise failure
            finally:
                failure = None  # its traceback has this frame

    def deliver(self, uploaded: Uploaded) -> Any:
        """Return a batch, fit for the calling thread's current stream. Never blocks."""
        (batch, info), rows = self._uploader.deliver(uploaded)
        self._emitted += rows
        return batch if info is None else (batch, info)

    def _receive(self, chunk: Any) -> None:
        columns = leaves_like(self._spec, chunk)
        rows = len(columns[0])
        uploaded = self._uploader.copy(
            [
                () if field.by_reference else column
                for field, column in zip(self._fields, columns, strict=True)
            ]
        )
        self._chunks.append(
            _Chunk(
                [
                    column if field.by_reference else on_device
                    for field, column, on_device in zip(
                        self._fields, columns, uploaded.item, strict=True
                    )
                ],
                rows,
            )
        )
        self._plan.offer(rows)

    def _batch(self, *, with_info: bool) -> Uploaded:
        stored, slots, source_index, use = self._plan.take()
        index = self._uploader.copy(np.concatenate([stored, slots])).item
        self._store(stored, index)
        device_slots = index[len(stored) :]
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
        info = EchoInfo(source_index, use) if with_info else None
        return self._uploader.computed(((batch, info), len(slots)), on_device)

    def _store(self, slots: Any, index: Any) -> None:
        """Store the next examples of the source into these slots."""
        done = 0
        while done < len(slots):
            chunk = self._chunks[0]
            rows = min(len(slots) - done, chunk.rows - chunk.stored)
            begin, end = chunk.stored, chunk.stored + rows
            for column, source in zip(self._columns, chunk.columns, strict=True):
                column.store(
                    slots[done : done + rows], index[done : done + rows], source[begin:end]
                )
            done += rows
            chunk.stored = end
            if chunk.stored == chunk.rows:
                self._chunks.popleft()
