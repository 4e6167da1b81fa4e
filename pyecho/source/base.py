"""A source: passes over data, each opened through one door. Each kind is a class of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from pyecho._core import CheckpointError
from pyecho.source.reader import Chained
from pyecho.source.seen import Seen
from pyecho.source.sniff import tell_epoch


class Pass(NamedTuple):
    """A pass that was opened."""

    items: Iterator[Any]
    begins: Any = ()
    """List of the rows with which the next items begin, if they do not follow one after the other
    from where the pass was opened. It has that of an item once this was read. Take them out."""


class Source:
    """A source; `pyecho.source.source_of` chooses the kind.

    One thread at a time reads a pass, or asks for a state.
    """

    in_memory = False  # True if reading never waits, so that it needs no thread of its own
    # True for an iterator, which cannot be read a second time. Known for certain after `open`;
    # before, any object with __next__ counts as an iterator.
    one_shot = False
    batched = False  # True if passes yield batches whose rows are the examples
    native = False  # True if it fills slots itself; passes are `NativePass` then
    exact = False  # True if a pass has as many items as `length` tells, for certain
    fills_slots = False  # True if `fill_slots` may be called
    unsure: str | None = None  # why `length` cannot be trusted, and so is None

    _by_index = False
    _splits = False

    def __init__(self, given: Any) -> None:
        self.object = given  # the source, as the user passed it
        self.seen = Seen()
        self.epoch = -1  # that it was told last; -1: none, or its state was loaded since

    @property
    def indexed(self) -> bool:
        """True if a pass can begin anywhere."""
        return self._by_index and not self._splits

    def set_epoch(self, epoch: int) -> None:
        """Call ``set_epoch(epoch)`` where it exists: on the source and on the parts that it reads.

        That is its ``sampler``, its ``batch_sampler``, the samplers within that, and its
        ``dataset``; an object found twice is told once.
        """
        tell_epoch(self.object, epoch)
        self.epoch = self.seen.epoch = epoch

    def open(self, epoch: int, at: int = 0, state: dict[str, Any] | None = None) -> Pass:
        """Tell the source of an epoch, if need be, and begin its pass. In the thread that reads it.

        `at`: begin with the item that has this row, at no cost; needs `indexed`. `state`: go on
        where this state of the source's own was taken; nothing is left of a pass that had met its
        end, even if the source would begin another one. `KeyboardInterrupt` in the middle of
        ``next()`` costs no item, unless it ends a generator of the user's.
        """
        if epoch != self.epoch:
            self.set_epoch(epoch)
        opened = self._open(at) if state is None else Pass(self._go_on(state))
        return Pass(Chained(opened.items, _parts)) if self._splits else opened

    def _open(self, at: int) -> Pass:
        raise NotImplementedError

    def _go_on(self, state: dict[str, Any]) -> Iterator[Any]:
        self.load(state)
        return iter(())

    def holding(self, epoch: int, rows: Sequence[int]) -> Pass | None:
        """Begin a pass that has only the items with these rows.

        None if items are read one after the other.
        """
        return None

    def example(self) -> Any:
        """Return an example, with zeros. Needs `native`."""
        raise NotImplementedError

    def split_lists(self) -> None:
        """Yield the examples in items that are lists, one by one (``unbatch="lists"``).

        How many there are shows only when they are read. So the source is read from its beginning
        again where a state goes on; a state of its own is of no use, because it counts items.
        """
        self._splits, self.exact, self.fills_slots = True, False, False

    # ------------------------------------------------------------ lengths

    def length(self) -> int | None:
        """Return the number of items in a pass, or None if it is unknown.

        Counts what the echo stage counts: examples in example echoing (with `unbatch`, too), items
        in batch echoing. Trusts ``len()``, and a ``collate_fn`` to keep every example unless it is
        `unsure`. With `unbatch` a list of batches is walked through on every call.
        """
        return None if self.unsure is not None or self._splits else self._length()

    def _length(self) -> int | None:
        return None

    def doubt(self, why: str) -> None:
        """Be `unsure` of the length."""
        self.unsure = why

    def rows_told(self) -> int | None:
        """Return how many rows the first batch must have if `length` is right; None: any number."""
        return None

    # ------------------------------------------------------------ epochs of a run, and workers

    def prepare(self) -> None:
        """Start what the source needs, in the consumer's thread, before it is read."""

    def begun(self) -> None:
        """Know that the epoch that `prepare` was called for has begun: it is not begun again."""
        self.seen.forget()

    def fill_slots(self, spec: Any, to_array: Callable[[Any], Any], together: int) -> None:
        """Have passes fill the slots of the stage that reads. Needs `fills_slots`.

        `spec`, `to_array`: of the stage. `together`: slots that are filled at a time, at most.
        """

    def close(self) -> None:
        """End what `prepare` has started. From any thread, and from finalizers."""

    def join(self, seconds: float) -> None:
        """Wait this long at most for the end of what was started."""

    # ------------------------------------------------------------ states

    def order(self, following: int | None) -> dict[str, Any] | None:
        """Return what a state holds of the order of passes; None: the source alone decides it.

        It is ``{"base": int | None, "begins": [[epoch, [array, ...]], ...], "counted": bool}``, see
        `pyecho.source.dataloader`. `following`: the epoch that begins next, between two.
        """
        return None

    def set_order(self, order: dict[str, Any] | None) -> None:
        """Have passes be in the order of a state."""
        if order is not None:
            raise CheckpointError(
                "the state holds the order of a DataLoader over a map-style dataset, and the "
                f"source here ({type(self.object).__name__}) is none"
            )

    @property
    def holder(self) -> Any:
        """Object with a state of its own (`state_methods`): the source, or this pass's iterator.

        None if neither has them; this `Source` itself while it keeps the loaded state of an
        iterator that has ended.
        """
        return None

    def open_pass(self) -> Iterator[Any] | None:
        """Return the pass of a `holder` whose end the holder does not know yet."""
        return None

    def state(self) -> dict[str, Any] | None:
        """Return the state of the `holder`, None without one. No thread may be reading.

        It is ``{"iterator": bool, "ended": bool, "state": ...}``: whether it is one of the pass's
        iterator, and whether this iterator has met its end. From `load` on, or from `open` with a
        state to the first item, it is the state that was loaded.
        """
        return None

    def load(self, state: dict[str, Any] | None) -> None:
        """Have the source go on where a state was taken; the next `open` begins a new pass.

        The rest of the pass is lost, unless the source goes on by itself.
        """
        if state is not None:
            raise CheckpointError(
                f"the state holds one of the source, but this one ({type(self.object).__name__}) "
                "has no load_state_dict"
            )


def _parts(item: Any) -> list[Any]:
    return item if isinstance(item, list) else [item]
