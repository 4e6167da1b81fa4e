"""The echo pool on a device: examples cross the link once, batches are made over there."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import torch

from pyecho._core import (
    CheckpointError,
    Closed,
    CudaError,
    EchoError,
    SlotPlan,
    checksum_of_column,
)
from pyecho.device.crossing import Crossing
from pyecho.device.handover import HandOver
from pyecho.device.leaves import leaves_in, size_of
from pyecho.device.pinned import hosts_of
from pyecho.device.tables import Tables
from pyecho.fitted import Fitted
from pyecho.items.nest import flatten
from pyecho.items.spec import Adapter, EchoInfo
from pyecho.run.host import HostEcho
from pyecho.run.reading import Reading
from pyecho.run.trace import span
from pyecho.state.items import refill
from pyecho.state.position import LAST_END, Position, Snapshot, Unspent, with_ends


class DeviceEcho:
    """Makes batches on a device, of chunks of examples that a native stage collects on the host.

    All of it happens in the order of pyecho's stream: chunks of fresh examples cross in one copy
    with the numbers of slots, are scattered into the slots that the plan gives them, and batches
    are gathered from slots. A slot that is stored to again after its last use needs no protection.

    A link's thread calls `take`, in `HandOver.computing`; see `pyecho.run.pipeline.Echo`.
    """

    def __init__(
        self,
        staging: HostEcho,  # its batches are chunks of consecutive examples, on the host
        fitted: Fitted,  # of the pool
        adapter: Adapter,
        handover: HandOver,
        *,
        chunk: int,  # most examples of a chunk
    ) -> None:
        self.lists = staging.lists
        self.stage = staging.stage
        self.blocks = None
        self.plan = SlotPlan(fitted)
        config = fitted.config
        self.spec = staging.spec
        self._staging = staging
        self._adapter = adapter
        self._handover = handover
        self._fields, self._structure = flatten(self.spec)
        self._to_tensor: Any = adapter.decoder(self._fields)
        # With an adaptive factor, chunks that have arrived are taken before each batch.
        self._polled_rows = chunk if config.adaptive is not None else 0
        # A column is one leaf of several examples: a tensor, or a list if it travels by reference.
        self._chunks: list[tuple[Any, list[Any]]] = []  # slots and columns, not stored yet
        self._tables: Tables | None = None  # of the examples in slots, once there was a chunk
        self._references: list[list[Any]] = [
            [None] * self.plan.slots for field in self._fields if field.by_reference
        ]
        self.most_rows = max(chunk, config.batch_size or 0)
        self._failure: BaseException | None = None
        self._ended = False  # the input
        self._iterations = self._delivered = self._dropped = 0  # the last two of one iteration
        self._counts = (0, 0)  # uses that were taken, and the first ones among them

    @property
    def at_end(self) -> bool:
        """True if everything was taken."""
        return bool(self.plan.at_end)

    def begin(self, saved: Snapshot, reading: Reading) -> None:
        """Begin where a snapshot was taken, or afresh."""
        at, unspent = saved.at, saved.unspent
        self._chunks.clear()
        self._failure = None
        self._ended = False
        self._iterations, self._delivered, self._dropped = at.iterations, at.delivered, 0
        follows, staged = Position(), None
        if saved.is_fresh:
            self.plan.begin(at)
        else:
            (numbers, slots), passes, items, batches = self.plan.resume(at, None)
            self._dropped = batches - min(at.delivered, batches)
            parts = reading.again
            if unspent is not None:  # the pool has what it had, and the staging the rest
                follows = at.after(passes, items)
                unspent, staged = unspent.parted(follows.fed)
                slots = slots[self._places(numbers, unspent.numbers)]
                parts = self._staging.items.parts(unspent)
            refill(self._refill, parts, slots)
        self._stage(follows, staged)
        self._staging.read(saved, reading)

    def _places(self, numbers: Any, saved: Any) -> Any:
        """Return where the items of a state are among the ones that the plan has."""
        places = np.flatnonzero(np.isin(numbers, saved))
        # With an adaptive factor it may hold more, which it does not use again.
        if len(places) != len(saved) or (len(saved) < len(numbers) and not self._polled_rows):
            raise CheckpointError(
                "the state contradicts itself: its items are not the ones of its position"
            )
        return places

    def _stage(self, at: Position, unspent: Unspent | None) -> None:
        """Begin the staging with the items, and ends of passes, that the plan has not taken."""
        if unspent is None or not (at.passes or at.open_items):
            self.stage._begin(at)
            return
        self.stage._make_room(len(unspent.numbers))
        _, slots = self.stage._resume(at, unspent.numbers)
        refill(self.stage._refill, self._staging.items.parts(unspent), slots)

    def log(self) -> dict[Any, Any]:
        """Return the decisions of an adaptive factor."""
        return self.plan.log

    def counts(self) -> tuple[int, int]:
        """Return how many uses were taken, and how many fresh examples among them."""
        return self._counts

    def stats(self) -> dict[str, int]:
        """Return the counters of the staging, and those of the pool."""
        emitted, fresh = self._counts
        counts = {"emitted": emitted, "fresh": fresh, "resident": self.plan.resident}
        return {**self.stage._stats(), **counts}

    def take(self) -> Crossing:
        """Return the next batch; raise `StopIteration` at the end of an epoch.

        An error of the source is raised after every use of the items before it, unless the device
        fails meanwhile.
        """
        while True:
            while 0 < self._polled_rows <= self.plan.room and self._pull(wait=False):
                pass
            complete = self.plan.advance()
            self.plan.check_log()
            if complete is None:
                break
            if not complete:
                self._pull(wait=True)
                continue
            with span("echo"):
                batch = self._batch()
            if batch is not None:
                self._delivered += 1
                return batch
            self._dropped += 1  # it is too short for drop_last
        self._iterations += 1
        self._delivered = self._dropped = 0
        if self._failure is not None and self.plan.at_end:
            failure, self._failure = self._failure, None
            try:
                raise failure
            finally:
                del failure  # its traceback has this frame
        raise StopIteration

    def _pull(self, *, wait: bool) -> bool:
        """Take a chunk, or the end of a pass. Return False if there is none, or the input ends."""
        if self._ended:
            return False
        try:
            chunk = self.stage._take(wait=wait)
        except StopIteration:
            if not self.stage._at_end:
                self.plan.end_pass()
                return True
            self._end()
            return False
        except (Closed, CudaError):
            raise  # the loader is stopped or paused; or no chunk can be pinned
        except BaseException as error:
            if not self.stage._failed:
                raise  # the chunk is still there
            self._failure = error
            self._end()
            return False
        if chunk is None:
            return False
        columns = self._structure.match(chunk)
        self._add(self.plan.offer(len(columns[0])), columns)
        return True

    def _end(self) -> None:
        self._ended = True
        self.plan.end_input()

    # ------------------------------------------------------------ columns

    def _add(self, slots: Any, columns: list[Any]) -> None:
        """Have columns stored in these slots, at the latest with the next batch."""
        if sum(len(slots) for slots, _ in self._chunks) + len(slots) > self.most_rows:
            self._store(np.empty(0, np.int64))
        self._chunks.append((slots, columns))

    def _store(self, more: Any) -> Any:
        """Store what came since the last batch, by one copy; return `more` slots on the device."""
        slots = np.concatenate([*(slots for slots, _ in self._chunks), more])
        stored = len(slots) - len(more)
        columns = list(zip(*(columns for _, columns in self._chunks), strict=True))
        chunks, self._chunks = self._chunks, []
        lists, hosts = iter(self._references), []
        for field, column in zip(self._fields, columns, strict=False):
            if not field.by_reference:
                hosts.append([host for part in column for host in hosts_of(part)])
                continue
            rows = next(lists)
            for slot, row in zip(slots, chain.from_iterable(column), strict=False):
                rows[slot] = row
        with torch.inference_mode(False), torch.no_grad():
            *tensors, index = self._handover.bring([*hosts, [torch.from_numpy(slots)]])
            if chunks:
                if self._tables is None:
                    self._tables = Tables(self.plan.slots, tensors, self.most_rows)
                self._tables.store(index.narrow(0, 0, stored), tensors)
        return index.narrow(0, stored, len(more))  # a slice would call the driver

    def _batch(self) -> Crossing | None:
        slots, source_index, use = self.plan.take()
        if len(slots) == 0:
            return None
        index = self._store(slots)
        tables: Any = self._tables
        leaves = tables.layout(len(slots))
        self._handover.lent_bytes = size_of(tables.layout(self.most_rows))
        lists = iter(self._references)
        columns = [
            list(map(next(lists).__getitem__, slots)) if field.by_reference else None
            for field in self._fields
        ]
        info = EchoInfo(source_index, use)
        crossing = self._handover.lend(leaves, columns, self._structure, info)
        with torch.inference_mode(False), torch.no_grad():
            tables.read(index, crossing.memory, leaves)
        emitted, fresh = self._counts
        self._counts = emitted + len(use), fresh + int(np.count_nonzero(use == 0))
        return self._handover.lent(crossing)

    # ------------------------------------------------------------ states

    def state(
        self, *, payload: bool, with_held: bool, taken: tuple[int, int] | None = None
    ) -> dict[str, Any]:
        """Return where the pool stands, with the examples that wait for it."""
        if self._failure is not None:
            raise EchoError("the source has raised an exception; no state can repeat that")
        staged = self.stage._state(payload=payload, with_held=with_held)
        iterations, batches = taken or (self._iterations, self._delivered + self._dropped)
        state = self.plan.state(payload=payload, iterations=iterations, batches=batches)
        if with_held:
            held = self._staging.items.held(staged["held"])
            state |= {"held": held, "held_row": staged["held_row"]}
        state |= {"iterations": self._iterations, "delivered": self._delivered}
        state["batches"] = self._delivered + self._dropped
        if not payload:
            return state
        numbers, slots = state.pop("items")
        fed = Position.of_input(state).fed
        count = len(staged["numbers"])
        # After a state that had the last item, the staging has an end that the plan knows.
        ends = with_ends([None] * count, staged, staged["iterations"])
        for end in [] if state["ended"] else ends:
            if end is None:
                state["open_items"] += 1
                continue
            state["passes"].append([1, state["open_items"]])
            state["open_items"], state["ended"] = 0, end == [LAST_END]
        numbers = np.concatenate([numbers, np.arange(fed, fed + count)])
        with self._handover.computing(), torch.inference_mode(False), torch.no_grad():
            columns = self._columns(slots, staged["columns"])
        sums = [
            checksum_of_column(column, numbers, leaf)
            for leaf, column in enumerate(columns)
            if not isinstance(column, list)
        ]
        native = {"numbers": numbers, "columns": columns, "checksum": sum(sums) % 2**64}
        return state | {"unspent": self._staging.items.unspent(native)}

    def _columns(self, slots: Any, staged: list[Any]) -> list[Any]:
        """Return the columns of the examples in these slots, followed by the staged ones."""
        parts = [self._rows_at(some) for some in self._split(slots)]
        return [
            [row for part in column for row in part]
            if isinstance(column[0], list)
            else np.concatenate(column)
            for column in zip(*parts, staged, strict=True)
        ]

    def _rows_at(self, slots: Any) -> list[Any]:
        """Return columns of at most `most_rows` examples: lists, and bytes."""
        index = self._store(slots)
        lists, tensors = iter(self._references), iter(list[Any]())
        if self._tables is not None:
            leaves = self._tables.layout(len(slots))
            block = index.new_empty(size_of(leaves), dtype=torch.uint8)
            self._tables.read(index, block, leaves)
            tensors = iter(leaves_in(block.cpu(), leaves))
        return [
            list(map(next(lists).__getitem__, slots))
            if field.by_reference
            else _bytes_of(next(tensors))
            for field in self._fields
        ]

    def _split(self, slots: Any) -> list[Any]:
        """Return parts that tables can store or read."""
        return [
            slots[begin : begin + self.most_rows] for begin in range(0, len(slots), self.most_rows)
        ]

    def _refill(self, item: Any, batched: bool, rows: Any, slots: Any) -> None:
        leaves = self._structure.match(item)
        with self._handover.computing(), torch.inference_mode(False), torch.no_grad():
            for some, into in zip(self._split(rows), self._split(slots), strict=True):
                columns = [
                    self._column(number, leaf if batched else [leaf], some)
                    for number, leaf in enumerate(leaves)
                ]
                self._add(into, columns)

    def _column(self, number: int, leaf: Any, rows: Any) -> Any:
        field = self._fields[number]
        if field.by_reference:
            return [leaf[row] for row in rows]
        if isinstance(leaf, list):  # of one
            leaf = leaf[0][None] if isinstance(leaf[0], torch.Tensor | np.ndarray) else leaf
        array = self._adapter.as_array(leaf)
        array = np.asarray(leaf, field.dtype) if array is None else array
        return self._to_tensor(array[rows], number)


def _bytes_of(column: torch.Tensor) -> Any:
    """Return rows in host memory as an array of the bytes of each."""
    shape = (len(column), column.shape[1:].numel() * column.element_size())
    if column.numel() == 0:
        return np.empty(shape, np.uint8)
    return column.contiguous().reshape(-1).view(torch.uint8).reshape(shape).numpy()
