"""The echo pool on a device: examples cross the link once, batches are made over there."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from pyecho._core import BatchPlan, Closed, CudaError, EchoError, checksum_of_column
from pyecho.config import Config
from pyecho.device.rows import DeviceRows
from pyecho.device.tensors import TICKET, as_words, bytes_of_rows, from_words
from pyecho.device.upload import Uploaded, Uploader
from pyecho.items.nest import leaves_like, leaves_of, map_nest
from pyecho.items.spec import Adapter, EchoInfo
from pyecho.run.host import ExampleEcho
from pyecho.run.reading import Reading
from pyecho.run.trace import span
from pyecho.state.position import (
    LAST_END,
    Position,
    Snapshot,
    examples_state,
    parts_of_examples,
    refill,
    with_ends,
)


class Gathered(NamedTuple):
    """A batch that was made on the device."""

    batch: Any
    info: EchoInfo


class DeviceEcho:
    """Makes batches on a device, of chunks of examples that a native stage collects on the host.

    All of it happens in the order of pyecho's stream: chunks of fresh examples are copied from
    pinned memory, scattered into the slots that the plan gives them, and batches are gathered from
    slots. A slot that is stored to again after its last use needs no other protection.

    A link takes from it: the link's thread calls `take`, and `finish` with what that returns.
    See `pyecho.run.pipeline.Echo`.

    Parameters
    ----------
    staging
        Collects examples on the host: its batches are chunks of consecutive examples.
    config
        Options of the pool.
    uploader
        Brings chunks to the device; the link's thread is in its `computing`.
    rows
        Rows made by the source on the device.
    chunk
        Most examples of a chunk.
    """

    def __init__(
        self,
        staging: ExampleEcho,
        config: Config,
        uploader: Uploader,
        rows: DeviceRows,
        *,
        adapter: Adapter,
        chunk: int,
    ) -> None:
        self.spec = spec = staging.spec
        self.lists = staging.lists
        self.stage = staging.stage
        self.plan = BatchPlan(config)
        self.rows = rows
        self._staging = staging
        self._config = config
        self._uploader = uploader
        self._adapter = adapter
        self._on_device = [field.dtype == TICKET for field in leaves_of(spec)]
        self._to_tensor: Any = adapter.decoder(leaves_of(spec))
        # With an adaptive factor, chunks that have arrived are taken before each batch.
        self._polled_rows = 0 if config.adaptive is None else chunk
        # A column is one leaf of several examples: a tensor, or a list if it travels by reference.
        self._chunks: list[tuple[Any, list[Any]]] = []  # slots and columns, not stored yet
        self._pools: list[Any] = []  # for each column, of rows or references, by slot
        self._like: list[Any] = []  # columns with rows such as those of the pools
        self._failure: BaseException | None = None
        self._ended = False  # the input
        self._iterations = self._delivered = self._dropped = 0  # the last two of one iteration
        self._emitted = self._fresh = 0  # uses that were taken

    @property
    def at_end(self) -> bool:
        """True if everything was taken."""
        return bool(self.plan.at_end)

    def begin(self, saved: Snapshot, reading: Reading) -> None:
        """Begin where a snapshot was taken, or afresh."""
        at, unspent = reading.at if not saved.is_fresh else saved.at, saved.unspent
        self._chunks.clear()
        self.rows.clear()
        self._failure = None
        self._ended = False
        self._iterations, self._delivered, self._dropped = at.iterations, at.delivered, 0
        if saved.is_fresh:
            self.plan.begin(at)
        else:
            count = None if unspent is None else len(unspent.numbers)
            places, _, _, batches = self.plan.resume(at, count)
            self._dropped = batches - min(at.delivered, batches)
            parts = reading.again
            if unspent is not None:
                parts = parts_of_examples(unspent, self._saved_spec)
            adaptive = self._config.adaptive is not None
            refill(self._refill, parts, saved, places, adaptive=adaptive)
        self.stage._begin(Position(epoch=at.epoch))
        self._staging.read(saved, reading)

    @property
    def _saved_spec(self) -> Any:
        """The spec of the examples in a state."""
        return self.rows.spec(self.spec, self._adapter.field_of) if self.rows else self.spec

    def log(self) -> dict[int, Any]:
        """Return the decisions of an adaptive factor."""
        return self.plan.log

    def stats(self) -> dict[str, int]:
        """Return the counters of the staging, and those of the pool."""
        counts = {"emitted": self._emitted, "fresh": self._fresh, "resident": self.plan.resident}
        found: dict[str, int] = self.stage._stats()
        return found | counts

    def take(self) -> Gathered:
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
            self._failure = error
            self._end()
            return False
        if chunk is None:
            return False
        with span("upload"), torch.inference_mode(False), torch.no_grad():
            self._receive(chunk)  # the pool outlives both
        return True

    def _end(self) -> None:
        self._ended = True
        self.plan.end_input()

    def finish(self, gathered: Gathered, epoch: int, number: int) -> tuple[Uploaded, EchoInfo]:
        """Finish a batch, of this number in its epoch, for `deliver`."""
        return self._uploader.finish(gathered.batch, epoch, number), gathered.info

    def deliver(self, finished: tuple[Uploaded, EchoInfo], number: int, use: int) -> Any:
        """Return a batch, fit for the calling thread's current stream. Never blocks."""
        uploaded, info = finished
        batch = self._uploader.deliver(uploaded)
        return (batch, info) if self._config.with_info else batch

    def _receive(self, chunk: Any) -> None:
        leaves = leaves_like(self.spec, chunk)
        rows = len(leaves[0])
        tickets = next(
            (leaf for leaf, there in zip(leaves, self._on_device, strict=True) if there), None
        )
        made = iter([] if tickets is None else self.rows.collect(tickets))
        columns = [
            next(made) if there else leaf if isinstance(leaf, list) else self._uploader.copy(leaf)
            for leaf, there in zip(leaves, self._on_device, strict=True)
        ]
        self._add(self.plan.offer(rows), columns)

    def _add(self, slots: Any, columns: list[Any]) -> None:
        if not self._pools:
            self._like = columns
            self._pools = [_pool(self.plan.slots, column) for column in columns]
        self._chunks.append((slots, columns))

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
            else from_words(pool.index_select(0, rows), like)
            for pool, like in zip(self._pools, self._like, strict=True)
        )
        batch = map_nest(lambda _: next(columns), self.spec)
        self._emitted += len(use)
        self._fresh += int(np.count_nonzero(use == 0))
        return Gathered(batch, EchoInfo(source_index, use))

    def _store(self, index: Any) -> None:
        """Store the examples that came since the last batch; `index` begins with their slots."""
        for slots, columns in self._chunks:
            rows = len(slots)
            for pool, column in zip(self._pools, columns, strict=True):
                if isinstance(pool, list):
                    for slot, row in zip(slots, column, strict=True):
                        pool[slot] = row
                else:
                    pool.index_copy_(0, index[:rows], as_words(column))
            index = index[rows:]
        self._chunks.clear()

    # ------------------------------------------------------------ states

    def state(self, *, payload: bool, with_held: bool) -> dict[str, Any]:
        """Return where the pool stands, with the examples that wait for it."""
        if self._failure is not None:
            raise EchoError("the source has raised an exception; no state can repeat that")
        staged = self._staging.native_state(payload=payload, with_held=with_held)
        state = self.plan.state()
        state |= {name: staged[name] for name in ("held", "held_row") if with_held}
        state |= {"iterations": self._iterations, "delivered": self._delivered}
        state["batches"] = self._delivered + self._dropped
        numbers, slots = state.pop("items")
        if not payload:
            return state
        fed = state["open_items"] + sum(count * items for count, items in state["passes"])
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
        with self._uploader.computing(), torch.inference_mode(False), torch.no_grad():
            columns = self._columns(slots, staged["columns"])
        sums = [
            checksum_of_column(column, numbers, leaf)
            for leaf, column in enumerate(columns)
            if not isinstance(column, list)
        ]
        native = {"numbers": numbers, "columns": columns, "checksum": sum(sums) % 2**64}
        return state | {"unspent": examples_state(native, self._saved_spec, self._adapter)}

    def _columns(self, slots: Any, staged: list[Any]) -> list[Any]:
        """Return the columns of the examples in these slots, and behind them the staged ones."""
        if self._chunks:
            self._store(self._uploader.copy(np.concatenate([slots for slots, _ in self._chunks])))
        index = self._uploader.copy(slots)
        tickets: Any = [each for each, on in zip(staged, self._on_device, strict=True) if on]
        tickets = tickets[0].view(np.int64)[:, 0] if tickets else []
        made = iter(self.rows.look_up(tickets) if len(tickets) else [])
        columns: list[Any] = [
            bytes_of_rows(next(made)) if on and len(tickets) else column
            for on, column in zip(self._on_device, staged, strict=True)
        ]
        for leaf, (pool, like) in enumerate(zip(self._pools, self._like, strict=True)):
            if isinstance(pool, list):
                columns[leaf] = [pool[slot] for slot in slots] + columns[leaf]
            else:
                stored = bytes_of_rows(from_words(pool.index_select(0, index), like))
                tail = [columns[leaf]] if len(staged[leaf]) else []  # else it may be of tickets
                columns[leaf] = np.concatenate([stored, *tail])
        return columns

    def _refill(self, item: Any, batched: bool, rows: Any, slots: Any) -> None:
        leaves = leaves_like(self.spec, item)
        with self._uploader.computing(), torch.inference_mode(False), torch.no_grad():
            index = self._uploader.copy(np.asarray(rows, np.int64))
            self._add(
                slots,
                [
                    self._column(number, leaf if batched else [leaf], rows, index)
                    for number, leaf in enumerate(leaves)
                ],
            )

    def _column(self, number: int, leaf: Any, rows: Any, index: Any) -> Any:
        field = leaves_of(self.spec)[number]
        if field.by_reference:
            return [leaf[row] for row in rows]
        if isinstance(leaf, list):  # of one
            leaf = leaf[0][None] if isinstance(leaf[0], torch.Tensor | np.ndarray) else leaf
        if self._uploader.is_there(leaf):
            return leaf.index_select(0, index)
        array = self._adapter.as_array(leaf)
        array = np.asarray(leaf, field.dtype) if array is None else array
        return self._uploader.copy(self._to_tensor(array[rows], number))


def _pool(slots: int, column: Any) -> Any:
    """Return a pool of references, or of words as wide as the rows of a tensor allow."""
    if isinstance(column, list):
        return [None] * slots
    words = as_words(column)
    return torch.empty((slots, words.shape[1]), dtype=words.dtype, device=words.device)
