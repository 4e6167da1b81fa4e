"""Epochs, lengths and states of a loader, whatever its consumer."""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from pyecho._core import ConfigError
from pyecho.checked import checked_int, refuse_unknown
from pyecho.config import Config, Factor, Options, with_options
from pyecho.fitted import Wiring
from pyecho.items.spec import NUMPY, Adapter
from pyecho.run.epochs import Epochs
from pyecho.run.host import host_pipeline
from pyecho.run.pipeline import MakePipeline
from pyecho.run.ranks import Group, agreed_length
from pyecho.run.run import Run
from pyecho.run.threads import EXIT_SECONDS
from pyecho.source import source_of
from pyecho.state.check import SavedState
from pyecho.state.position import whole_state
from pyecho.stats import EchoStats

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack


class BaseLoader:
    """Iterates a source, see `pyecho.EchoLoader`."""

    _adapter: ClassVar[Adapter] = NUMPY
    _group: Group | None = None
    _tells_epochs: ClassVar[bool] = True  # to what its source reads from, see Source.set_epoch

    @with_options
    def __init__(self, source: Any, factor: Factor = 2, **options: Unpack[Options]) -> None:
        refuse_unknown(type(self), options.keys() - Options.__annotations__)
        group = self._group
        rank, ranks = (0, 1) if group is None else (group.rank, group.size)
        self._config = config = Config(factor=factor, **options, rank=rank, ranks=ranks)
        if config.pin_memory and self._adapter.allocate is None:
            raise ConfigError(
                "pin_memory=True needs pyecho.torch.EchoLoader, whose memory is PyTorch's"
            )
        self._source = source_of(source, config)
        self._longest = agreed_length(config, self._source, group)
        self._run: Run = self._new_run()
        if isinstance(source, BaseLoader):
            if source._config.ranks > 1:
                raise ConfigError(
                    "the inner loader has a group, whose ranks would talk in a thread of this one; "
                    "give the group to this loader only"
                )
            if config.batch_size is None:  # it keeps batches, which the inner one could warn of
                kept = config.capacity + config.prefetch + 1 + config.held_by_links
                source._run.epochs.wiring.held += kept
                self._run.epochs.wiring.reads_few = True
        # Not in the first next(): Ctrl-C in an import may leave its lock to threads that import.
        if config.linked:
            from pyecho.run import augment, examples, link  # noqa: F401
        if config.progress:
            from pyecho.run.progress import require_tqdm

            require_tqdm()

    def __getstate__(self) -> dict[str, Any]:
        """Return what copies and pickles hold: source, options, epoch, a loaded state."""
        return self.__dict__ | {"_run": self._run.epochs.copied()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Go on with the next epoch, of a source whose position is the copy's own."""
        self.__dict__.update(state)
        self._source = copy.copy(self._source)
        self._run = self._new_run()
        self._run.epochs.restore(*state["_run"])

    # ------------------------------------------------------------ iteration

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator for the next epoch, which begins with its first ``next()``."""
        batches = self._run.iterate()
        if self._config.progress:
            from pyecho.run.progress import Shown

            return Shown(batches, operator.length_hint(self) or None, self.stats)
        return batches

    def _new_run(self) -> Run:
        source, config = self._source, self._config
        asked = config.threads == 0 or (source.in_memory and config.threads is None)
        # An adaptive factor compares the speeds of two threads.
        needs_threads = config.linked or config.adaptive or source.native or config.num_workers
        by_consumer = asked and not needs_threads and self._may_read_in_consumer()
        wiring, make = Wiring(by_consumer=by_consumer), self._pipeline_maker()
        return Run(Epochs(source, config, make, wiring, self._group))

    def _may_read_in_consumer(self) -> bool:
        return True  # the pipeline needs no thread that reads

    def _pipeline_maker(self) -> MakePipeline:
        return partial(host_pipeline, adapter=self._adapter)

    # ------------------------------------------------------------ length, epochs, statistics

    def __len__(self) -> int:
        """Return the number of batches of an epoch, the same for every epoch.

        Raises `TypeError` where it cannot be known, unless `steps_per_epoch` decides it: the source
        does not tell how many items or examples it has, `unique_in_batch` leaves it to the draws,
        or an `Adaptive` factor to the source's speed.
        """
        config = self._config
        items = None if config.steps_per_epoch else self._items()
        batches = config.batches_of(items)
        if batches is not None:
            return batches
        if items is None:
            what = "examples" if config.unbatch else "items"
            why = self._source.unsure or f"does not tell how many {what} it has"
            raise TypeError(
                f"the source ({type(self._source.object).__name__}) {why}, so this loader has no "
                "len(); where you know better, pass steps_per_epoch="
            )
        why = "with unique_in_batch=True the number of batches depends on the draws"
        if config.adaptive is not None:
            why = "with an adaptive factor the number of batches depends on the source's speed"
        raise TypeError(f"{why}; to fix it, pass steps_per_epoch=")

    def _items(self) -> int | None:
        """Return the items of a pass that decide the number of batches."""
        epochs = self._run.epochs
        if epochs.unfinished and epochs.longest is not None:
            return epochs.longest
        if self._config.ranks == 1:
            return self._source.length()
        return self._longest if epochs.longest is None else epochs.longest

    def set_epoch(self, epoch: int) -> None:
        """Choose the number of the next epoch, which with the seed selects the random numbers.

        Ends an unfinished iteration. A source, sampler or dataset with a ``set_epoch`` of its own
        is told as well. The number that comes next anyway changes nothing.
        """
        epoch = checked_int("epoch", epoch, 0, 2**63)
        epochs = self._run.epochs
        if epoch == epochs.number + 1 and epochs.only_end_is_left:
            list(self._run.iterate())  # no batch is left
        self._run.seek(epoch)
        epochs = self._run.epochs  # others in a forked process
        if not (epochs.flows and epochs.number == epoch):  # else its pass has begun
            self._source.set_epoch(epoch)

    def stats(self) -> EchoStats:
        """Return counts and times over all epochs of this loader, the running one included."""
        return self._run.epochs.stats()

    # ------------------------------------------------------------ states

    def state_dict(self, *, payload: bool = True) -> dict[str, Any]:
        """Return where the consumer is: a loader that loads it goes on with the next batch.

        Its output is the same, bit for bit, in a new process and with any `threads`, `prefetch`,
        `pin_memory` and `augment_workers`. Call it between two batches, in the consumer's thread:
        after the last batch of an epoch the (empty) rest of that epoch follows, after its end the
        next epoch. It is a nest of dicts, lists, numbers, strings and NumPy arrays; other objects
        (of the source, of `augment`) are in it as they are. In batch echoing it may share memory
        with the loader: save or copy it before you go on.

        After the iteration was left (``break``), it is the position where it was left (after the
        last of ``len()`` batches: the next epoch), until the next ``iter()``, `set_epoch`, `close`.
        After an exception of the source, `augment` or `collate_fn` reached the loop, it is the next
        epoch: to go on in this one, load an earlier state.

        A source with a ``state_dict`` and ``load_state_dict``, or ``get_state`` and ``set_state``,
        of its own or of its iterators, goes on by them, a `torch.utils.data.DataLoader` over a
        map-style dataset by its order, which is in the state. Every other source must yield the
        same items again: it is read from the beginning of the pass, or by index if it has indices.

        Parameters
        ----------
        payload
            Save the items that are not used up. Without them the state is small, and they are read
            from the source again.

        Raises
        ------
        EchoError
            If a thread is inside ``next()``, if an error of the source is about to reach the
            consumer, or, where the source has a state of its own, without the payload or until the
            next batch after the beginning of an epoch was cut short.
        """
        return whole_state(self._config, **self._run.state(payload))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was called. The next ``iter()`` begins with the next batch.

        Ends an unfinished iteration. The source, and the options that decide the output, must be
        those of the loader whose state it is. A state without items that was taken of one rank
        serves all ranks, and any number of ranks that divides `shards`, if passes have one length.
        `stats` starts from what this loader does, and ``len()`` stays that of whole epochs.

        Raises `CheckpointError` if the state is damaged, or that of other options; at the first
        ``next()`` also if the source has other items. Nothing in a state is ever called.
        """
        self._run.seek(SavedState.read(state, self._config))

    def close(self) -> None:
        """Finish this loader for good: its iterators and ``iter()`` then raise `Closed`."""
        self._run.close()
        self._run.epochs.thread_pool.join(EXIT_SECONDS)
        self._source.join(EXIT_SECONDS)

    def __enter__(self) -> Self:
        """Return the loader."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the loader."""
        self.close()
