"""The native echo stage, for custom loaders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from pyecho import _core
from pyecho._core import CheckpointError, ConfigError
from pyecho.adaptive import Adaptive
from pyecho.checked import checked_int, with_checked_names
from pyecho.config import MAX_CAPACITY, Config
from pyecho.fitted import Fitted, Wiring
from pyecho.items.nest import fields_of, node_of
from pyecho.items.programs import Ops, Row, rows_with
from pyecho.items.ragged import ragged_rows
from pyecho.items.spec import NUMPY, EchoInfo
from pyecho.state.items import examples_state, parts_of_examples, refill
from pyecho.state.position import Position, position_of, whole_state
from pyecho.stats import EchoStats

_ALIGNMENT = 16  # of the arrays of a batch, enough for every dtype


class EchoBuffer(_core.ExampleStage):
    """A native buffer that takes examples and yields batches of their uses, echoed and shuffled.

    Any number of threads may `put`; one thread at a time iterates. Batches are nests of NumPy
    arrays with a leading batch axis, private to the consumer and writable; their memory is used
    again once no array (or view of one) refers to it. The output depends on the order of the
    examples and on the arguments, not on threads or timing.

    Parameters
    ----------
    spec
        Nest of `Field` for one example, as `spec_of` returns it.
    factor
        As in `EchoLoader`; a fraction is spread evenly.
    batch_size
        Rows of a batch; the last one may have fewer.
    shuffle_buffer
        Distinct examples among which each use is drawn; 0 or 1 means no shuffling.
    unique_in_batch
        Never put an example into one batch twice. Needs ``shuffle_buffer >= batch_size``; batches
        at the end of the input may be short.
    seed, epoch
        Select the random numbers.
    steps_per_epoch
        End the iteration after this many batches; the next one goes on.
    drop_last, ops, prefetch, with_info
        As in `EchoLoader`.
    threads
        Native threads that assemble batches ahead of the consumer; 0: the consumer assembles each
        when it asks for it. None: 0 where that takes less than waking a thread, else all cores but
        one, at most 4.
    slots_ahead
        Slots ahead of the pool, for examples that arrive together (rows of a `put_batch`); of small
        ones as many as 4 MiB hold, up to `shuffle_buffer`.
    held
        Batches that the consumer holds at the same time (a loop holds one while it asks for the
        next). With more the buffer grows, and says so with one `ResourceWarning`.
    max_bytes
        Bound of the memory for slots and batches. None: the buffer grows as long as the consumer
        keeps batches.
    to_array, from_array
        For arrays of another library: ``to_array(leaf)`` returns an ndarray that shares the leaf's
        memory, or None; ``from_array(ndarray, leaf_number)`` what the consumer gets.
    allocate
        Memory of another allocator for batches, such as pinned memory: ``allocate(size_bytes)``
        returns a writable block of bytes that NumPy can view, for one batch, whose arrays have it
        as their `base`. Neither `held` nor `max_bytes` count blocks that the consumer keeps.

    Raises
    ------
    ConfigError
        If an argument is wrong or `max_bytes` is too small for the rest.
    """

    @with_checked_names
    def __init__(
        self,
        spec: Any,
        factor: float | Adaptive = 2,
        *,
        batch_size: int,
        drop_last: bool = False,
        shuffle_buffer: int = 1,
        unique_in_batch: bool = False,
        seed: int = 0,
        epoch: int = 0,
        steps_per_epoch: int | None = None,
        ops: Ops = None,
        prefetch: int = 2,
        threads: int | None = None,
        slots_ahead: int = 1,
        held: int = 2,
        max_bytes: int | None = None,
        with_info: bool = False,
        to_array: Callable[[Any], Any] | None = None,
        from_array: Callable[[Any, int], Any] | None = None,
        allocate: Callable[[int], Any] | None = None,
    ) -> None:
        config = Config(
            batch_size=checked_int("batch_size", batch_size, 1, 2**30),
            factor=factor,
            shuffle_buffer=checked_int("shuffle_buffer", shuffle_buffer, 0, MAX_CAPACITY),
            seed=seed,
            unique_in_batch=unique_in_batch,
            drop_last=drop_last,
            prefetch=prefetch,
            threads=threads,
            max_bytes=max_bytes,
            with_info=with_info,
            ops=ops,
            steps_per_epoch=steps_per_epoch,
            kind="buffer",
        )
        fitted = Fitted(
            config,
            config.capacity,
            config.prefetch,
            Wiring(),
            slots_ahead=checked_int("slots_ahead", slots_ahead, 1, 2**30),
            held=checked_int("held", held, 1, 2**29),
            epoch=checked_int("epoch", epoch, 0, 2**64 - 1),
        )
        fields_of(spec)  # which checks it
        rows, row_spec = rows_with(config.ops, spec, NUMPY)
        super().__init__(
            **native_arguments(
                spec,
                fitted,
                to_array=to_array,
                from_array=from_array,
                allocate=allocate,
                rows=rows,
                ragged=ragged_rows(row_spec, NUMPY),
            )
        )
        self._config, self._spec, self._epoch = config, spec, fitted.epoch

    def state_dict(self) -> dict[str, Any]:
        """Return where the consumer is, with the examples that it has not had to their last use.

        See `EchoLoader.state_dict`. ``state["taken"]`` is the number of examples put so far; after
        loading, a program puts the ones after them. Other threads may put meanwhile, in any order
        but that of a reservation that is open.
        """
        native, epoch = self._state(payload=True, with_held=False), self._epoch
        at = Position.of_input(native)
        return whole_state(
            self._config,
            epoch=epoch,
            position=position_of(native, epoch, None, None),
            unspent=examples_state(native, self._spec, NUMPY),
            taken=at.segment.taken + at.fed,
        )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was called, with the examples in the state.

        Ends an iteration under way; no thread may be putting. If the input had been closed, it is
        closed again. Raises `CheckpointError`; if that shows late, the buffer is empty, and takes
        examples.
        """
        from pyecho.state.check import SavedState

        saved = SavedState.read(state, self._config).snapshot
        if saved is None or saved.unspent is None:
            raise CheckpointError("the state of a buffer holds its examples, and this one does not")
        parts = parts_of_examples(saved.unspent, self._spec)
        self._make_room(len(saved.unspent.numbers))
        try:
            _, slots = self._resume(saved.at, saved.unspent.numbers)
            refill(self._refill, parts, slots)
            if saved.at.ended:
                self.close()
        except BaseException:
            self._begin(Position(epoch=self._epoch))
            raise
        finally:
            self._set_paused(False)

    def stats(self) -> EchoStats:
        """Return counts and times so far."""
        return stats_of(self._stats(), self._config.capacity, self._log())


def native_arguments(
    spec: Any,
    fitted: Fitted,
    *,
    name: str = "EchoBuffer",
    batched: bool = False,
    to_array: Callable[[Any], Any] | None = None,
    from_array: Callable[[Any, int], Any] | None = None,
    allocate: Callable[[int], Any] | None = None,
    blocks: Any = None,
    rows: Sequence[Row | None] = (),
    ragged: Callable[[Any, Any, int], Any] | None = None,
) -> dict[str, Any]:
    """Return what a native stage of example echoing is made of, as its keyword arguments.

    `name` is what messages call it. `batched`: the items that it reads are batches, whose rows are
    the examples. `blocks`: `pyecho.device.blocks.Blocks` from which batches are sent to a device.
    `rows`: how those of each leaf are made, see `pyecho.items.programs`. `ragged`: what makes rows
    of leaves whose examples differ in size, see `pyecho.items.ragged`.
    """
    example_bytes = sum(each.size_bytes for each in fields_of(spec))
    threads = 0 if fitted.wiring.by_consumer else fitted.config.threads_for(example_bytes)
    return {
        "spec": spec,
        "node_of": node_of,
        "config": fitted._replace(threads=max(int(bool(blocks)), threads)),
        "name": name,
        "batched": batched,
        "new_memory": blocks.new if blocks else allocate and partial(_new_memory, allocate),
        "uploads": blocks.uploads if blocks else None,
        "rows": list(rows),
        "ragged": ragged,
        "to_array": to_array or NUMPY.as_array,
        "from_array": from_array,
        "info_type": EchoInfo,
    }


def _new_memory(allocate: Callable[[int], Any], size_bytes: int) -> tuple[int, Any]:
    """Return the address of a new block, and the block."""
    block = allocate(size_bytes)
    array = np.asarray(block)
    copied = array is not block and array.base is None
    address = array.ctypes.data
    if copied or array.nbytes < size_bytes or not array.flags.carray or address % _ALIGNMENT:
        raise ConfigError(
            f"allocate must return a writable, contiguous block of {size_bytes} bytes that NumPy "
            f"can view, at a multiple of {_ALIGNMENT}, got {array.nbytes} bytes at {address:#x} "
            f"({type(block).__name__})"
        )
    return address, block


def stats_of(counters: dict[str, int], capacity: int, log: dict[Any, Any]) -> EchoStats:
    """Make an `EchoStats` of a native stage's counters, and its log."""
    counts: dict[str, Any] = counters.copy()
    occupancy = counts.pop("resident") / capacity
    for name in ("source", "upstream", "consumer_wait", "downstream"):
        counts[f"{name}_seconds"] = counts.pop(f"{name}_ns") * 1e-9
    return EchoStats(**counts, occupancy=occupancy, log=log)
