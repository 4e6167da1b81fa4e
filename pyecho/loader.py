"""The loader: wraps a source and yields its items echoed and shuffled."""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from pyecho._core import ConfigError
from pyecho.checked import checked_int, refuse_unknown
from pyecho.config import Config, Factor, Options, with_options
from pyecho.items.spec import NUMPY, Adapter
from pyecho.methods import LoaderTools
from pyecho.run.extent import Group, agreed_length
from pyecho.run.host import host_pipeline
from pyecho.run.pipeline import MakePipeline
from pyecho.run.run import Run
from pyecho.run.threads import EXIT_SECONDS
from pyecho.source import source_of
from pyecho.state.check import SavedState
from pyecho.state.position import whole_state

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack


class EchoLoader(LoaderTools):
    """Iterate a source with each of its items used several times, shuffled.

    ::

        source ──▶ pool of distinct items ──▶ e uses of each, drawn at random ──▶ batches

        for batch in EchoLoader(source, factor=3, batch_size=64): ...

    With ``batch_size=None`` (batch echoing) items pass through by reference, whatever they are.
    With a `batch_size` (example echoing) items are examples, or batches that `unbatch` splits, and
    new batches are assembled natively from their uses; these are private and writable. The output
    depends on the source, the arguments and the epoch, not on threads or timing.

    Each ``iter()`` is one epoch: one pass over the source, which begins with the first ``next()``.
    The next epoch ends an unfinished one, whose iterator then raises `Closed`; over an iterator,
    which is read once, it goes on where that one was left, with a warning.

    Lists, tuples, ranges, arrays, tensors and Arrow tables in memory are read in the consumer's
    thread, all other sources in a thread of the loader, in the context (`contextvars`, torch's grad
    mode, autocast, devices) of the thread that began the epoch. Every epoch's number is told to the
    source, its ``sampler``, ``batch_sampler`` and ``dataset``, if they have a ``set_epoch``.

    The options stand in groups: what a batch is (`batch_size` to `fields`), its order
    (`shuffle_buffer` to `seed`), how far to go (`epochs` to `shards`), what happens on every use
    (`ops` to `augment_workers`), sources with items by index (`shuffle` to
    `multiprocessing_context`), resources (`prefetch` to `max_bytes`), and the rest.

    Parameters
    ----------
    source
        Any iterable, an array, tensor or tuple of arrays (their rows), an Arrow table or stream
        (``__arrow_c_stream__``, or a dataset of pyarrow's: its rows; in batch echoing its record
        batches), a dataset or shard of Ray Data (likewise), or a map-style dataset
        (``__getitem__`` and ``__len__``); for several epochs one that can be read again.
    factor
        How often each item is used: an int, or a float whose fraction of the items gets one more
        use (a random choice where the number N of items is known, else spread evenly). A pass has
        ``floor(N * factor + 0.5)`` uses. Or an `Adaptive`, which follows the source's speed.
    batch_size
        Rows of a batch (example echoing), or None (batch echoing).
    unbatch
        The source yields batches: split them into examples first. ``"lists"``: an item that is a
        list counts as the examples in it, such as patches of a volume.
    drop_last
        Leave out batches with fewer than `batch_size` rows.
    pad_last
        Give each pass the next multiple of `batch_size` uses: all batches are full. Needs a length.
    collate_fn
        Example echoing: ``collate_fn(examples)`` makes a batch of a list of examples, on every use,
        in the threads of `augment`; examples then travel by reference and may be anything.
    fields
        ``{"image": pyecho.Field((None, None, 3), "uint8", max_bytes=4 << 20)}``, by names (keys
        joined by dots), or a `Field` for the one leaf with axes: its examples differ in size.
        Batches have a `Ragged`, with a `Field` that has a ``pad`` a `Padded`, unless `ops` make
        rows of one shape. With the loader's `max_bytes` each example counts as the most that it
        may have.
    shuffle_buffer
        Distinct items among which each use is drawn; 0 or 1 means that repeats follow each other.
        None: ten batches in example echoing (at most 2^26 uses), 0 in batch echoing.
    unique_in_batch
        Never put an item into one batch twice. Needs ``shuffle_buffer >= batch_size``.
    seed
        Selects the random numbers, together with the epoch.
    epochs
        Number of passes that flow into each other: the source goes on with the next pass while the
        pool keeps its items, and only the last pass drains. Each iteration has as many batches as
        without. None: each epoch drains the pool.
    steps_per_epoch
        Number of batches of each iteration, whatever the length of the source, which is read over
        and over; the pool is kept between iterations.
    shards
        Number of independent streams to which the items are dealt by turns, each with its own pool
        and draws, and as many uses as the others; a batch takes uses of one after the other. With
        the ``group=`` of `pyecho.torch.EchoLoader` ranks are dealt streams, so that any number of
        ranks that divides `shards` makes the same global batches. None: one for each rank.
    ops
        Example echoing: operations of `pyecho.ops` that every use goes through on its way into the
        batch, such as ``[ops.RandomCrop((224, 224)), ops.ToCHW()]``: natively and without the GIL.
        A list, for the one leaf that has axes, or a dict of lists: a key is the name of a leaf (its
        keys, joined by dots), or a tuple of names, which share their random draws.
    augment_example
        Example echoing: ``augment_example(example, rng)`` is called for each row on every use,
        before a batch is made of what it returns (by `collate_fn`, if there is one), with a
        generator seeded also by the row. The example is its own to change: objects that travel by
        reference are copied.
    augment
        ``augment(batch, rng)`` is called on every use, with a `numpy.random.Generator` seeded by
        (seed, epoch, number of the batch); what it returns is what the loader yields. Random
        functions of torch draw from a generator seeded likewise. Objects that travel by reference
        are those of other uses, too.
    augment_workers
        Threads that call `augment_example`, `collate_fn` and `augment`; 0 is one. Each of several
        has a deep copy of them (of a bound method's object, too), made with the first item: objects
        that keep a state need not be thread-safe, and the originals stay as they are. Functions,
        and objects without a deep copy, are shared with all they use, so put a transform that keeps
        a state into an object that is called, or pass 1. The output of pure functions is the same
        for any number.
    shuffle
        Read a source with items by index in an order that (seed, epoch) selects and that needs no
        memory. With a `group` the source is the whole one, and the order is dealt to the ranks.
    sampler
        Any iterable of indices that yields the same ones again for an epoch; a ``set_epoch`` is
        told. Random functions of torch draw from a generator seeded by (seed, epoch) in it.
    num_workers
        Workers that call ``source[index]``, for sources with items by index; 0: one thread of the
        loader reads. The output is the same for any number, if nothing random is drawn.
    workers
        ``"process"``: worker processes, which write what they make straight into shared memory.
        They see `torch.utils.data.get_worker_info`, learn of epochs, and have the generators of
        `random`, NumPy and torch seeded by (seed, epoch, place) for every item. ``"thread"``:
        threads, for sources that release the GIL. Those, and no workers, are not seeded.
    worker_init_fn
        ``worker_init_fn(number)`` is called when a worker starts.
    multiprocessing_context
        How worker processes start: ``"fork"``, ``"forkserver"``, ``"spawn"`` or a context of
        `multiprocessing`; None: as Python does by default.
    prefetch
        Batches (in batch echoing items) made ahead of the consumer; of small ones as many as 4 MiB
        hold, up to 32 batches or 256 items.
    threads
        Native threads that assemble batches ahead of the consumer; 0: the consumer's thread does
        everything, reading included (but with an adaptive factor). None: as many as pay.
    pin_memory
        True: batches of examples lie in pinned memory of PyTorch's, from which a CUDA device can
        copy while the host goes on (in `pyecho.torch.EchoLoader` only, and not if `collate_fn`
        makes them; `max_bytes` counts them until they leave). None: with a device. False: never.
    max_bytes
        Bound of the host memory for slots, batches and bookkeeping.
    with_info
        Yield ``(batch, info)`` with an `EchoInfo`.
    copy
        Batch echoing: give every use its own writable copy, instead of sharing one storage.
    progress
        Show a tqdm progress bar, with the pool's fill, R, uses per fresh item and fresh share.

    Raises
    ------
    ConfigError
        If an argument is wrong; when the first item is known also if `max_bytes` is too small.
    """

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
        if isinstance(source, EchoLoader):
            if source._config.ranks > 1:
                raise ConfigError(
                    "the inner loader has a group, whose ranks would talk in a thread of this one; "
                    "give the group to this loader only"
                )
            self._run.engine.keep_batches_of(source._run.engine)
        # Not in the first next(): Ctrl-C in an import may leave its lock to threads that import.
        if config.linked:
            from pyecho.run import augment, examples, link  # noqa: F401
        if config.progress:
            from pyecho.run.progress import require_tqdm

            require_tqdm()

    def __getstate__(self) -> dict[str, Any]:
        """Return what copies and pickles hold: source, options, epoch, a loaded state."""
        return self.__dict__ | {"_run": self._run.copied()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Go on with the next epoch, of a source whose position is the copy's own."""
        self.__dict__.update(state)
        self._source = copy.copy(self._source)
        self._run = self._new_run()
        self._run.restore(*state["_run"])

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
        make = self._pipeline_maker()
        return Run(source, config, make, by_consumer=by_consumer, group=self._group)

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
        if self._run.unfinished and self._run.longest is not None:
            return self._run.longest
        if self._config.ranks == 1:
            return self._source.length()
        return self._longest if self._run.longest is None else self._run.longest

    def set_epoch(self, epoch: int) -> None:
        """Choose the number of the next epoch, which with the seed selects the random numbers.

        Ends an unfinished iteration. A source, sampler or dataset with a ``set_epoch`` of its own
        is told as well. The number that comes next anyway changes nothing.
        """
        epoch = checked_int("epoch", epoch, 0, 2**63)
        run = self._run
        if epoch == run.epoch + 1 and run.only_end_is_left:
            list(run.iterate())  # no batch is left
        run.set_epoch(epoch)
        if not (run.flows and run.epoch == epoch):  # else its pass has begun
            self._source.set_epoch(epoch)

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
        self._run.load(SavedState.read(state, self._config))

    def close(self) -> None:
        """Finish this loader for good: its iterators and ``iter()`` then raise `Closed`."""
        self._run.close()
        self._run.engine.crew.join(EXIT_SECONDS)
        self._source.join(EXIT_SECONDS)

    def __enter__(self) -> Self:
        """Return the loader."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the loader."""
        self.close()
