"""Source: what the user gave, how one pass over it is read, and what is known beforehand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyecho._core import CheckpointError


class Source:
    """A source; each kind is a class of its own, which `pyecho.source.source_of` chooses.

    One thread at a time reads a pass, or asks for a state.
    """

    object: Any
    """The source, as the user passed it."""

    in_memory = False
    """True if reading never waits, so that it needs no thread of its own."""

    one_shot = False
    """True for an iterator, which cannot be read a second time. Known for certain after `read`;
    before, any object with ``__next__`` counts as an iterator."""

    batched = False
    """True if `read` yields batches whose rows are the examples."""

    indexed = False
    """True if `read` can start anywhere."""

    unsure: str | None = None
    """Why `length` cannot be trusted, so that it is None; None: it can."""

    native = False
    """True if it fills slots itself, see `pyecho.source.native`; `read` returns a `NativePass`."""

    def __init__(self, given: Any) -> None:
        self.object = given

    def read(self, start: int = 0) -> Iterator[Any]:
        """Begin one pass. Call this in the thread that will read the items.

        `start`: leave out this many items, at no cost; needs `indexed`. `KeyboardInterrupt` in the
        middle of ``next()`` costs no item, unless it ends a generator of the user's.
        """
        raise NotImplementedError

    def length(self) -> int | None:
        """Return the number of items in a pass, or None if it is unknown.

        Counts what the echo stage counts: examples in example echoing (with `unbatch`, too), items
        in batch echoing. Trusts ``len()``, and a ``collate_fn`` to keep every example unless it is
        `unsure`. With `unbatch` a list of batches is walked through on every call.
        """
        raise NotImplementedError

    def rows_told(self) -> int | None:
        """Return how many rows the first batch must have if `length` is right; None: any number."""
        return None

    def example(self) -> Any:
        """Return an example, with zeros. Needs `native`."""
        raise NotImplementedError

    def set_epoch(self, epoch: int) -> None:
        """Call ``set_epoch(epoch)`` where it exists: on the source and on the parts that it reads.

        That is its ``sampler``, its ``batch_sampler``, the samplers within that, and its
        ``dataset``; an object found twice is told once.
        """
        targets = [self.object, getattr(self.object, "sampler", None)]
        sampler = getattr(self.object, "batch_sampler", None)
        while sampler is not None and len(targets) < 8:  # Accelerate puts one into another
            targets += [sampler, getattr(sampler, "sampler", None)]
            sampler = getattr(sampler, "batch_sampler", None)
        targets.append(getattr(self.object, "dataset", None))
        if getattr(
            type(self.object), "_tells_epochs", False
        ):  # a loader, which may be passes ahead
            targets = [self.object]
        for target in {id(target): target for target in targets}.values():
            set_epoch = getattr(target, "set_epoch", None)
            if callable(set_epoch):
                set_epoch(epoch)

    # ------------------------------------------------------------ states of the source's own

    @property
    def holder(self) -> Any:
        """Object with a state of its own: the source, the iterator of this pass, or None.

        That is an object with ``state_dict`` and ``load_state_dict``. It is this `Source` itself
        while it keeps the loaded state of an iterator that has ended.
        """
        return None

    def state(self) -> dict[str, Any] | None:
        """Return the state of the `holder`, None without one. No thread may be reading.

        It is ``{"iterator": bool, "ended": bool, "state": ...}``: whether it is one of the pass's
        iterator, and whether this iterator has met its end. From `load` on, or from `read_on` to
        the first item, it is the state that was loaded.
        """
        return None

    def load(self, state: dict[str, Any] | None) -> None:
        """Have the source go on where a state was taken; the next `read` begins a new pass.

        The rest of the pass is lost, unless the source goes on by itself.
        """
        if state is not None:
            raise CheckpointError(
                f"the state holds one of the source, but this one ({type(self.object).__name__}) "
                "has no load_state_dict"
            )

    def read_on(self, state: dict[str, Any]) -> Iterator[Any]:
        """Load a state and go on with the pass in which it was taken.

        Nothing is left of a pass that had met its end, even if the source would begin another one.
        """
        self.load(state)
        return iter(())
