"""The loader: wraps a source and yields its items echoed and shuffled."""

from __future__ import annotations

import copy
import inspect
import operator
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pyecho._core import ConfigError, EchoError
from pyecho.adaptive import Adaptive
from pyecho.checked import checked_int
from pyecho.config import Config, Options
from pyecho.items.spec import NUMPY, Adapter
from pyecho.run.progress import require_tqdm, shown
from pyecho.run.ranks import Alone, Group, longest
from pyecho.run.run import Run
from pyecho.run.stages import Stages
from pyecho.run.trace import Trace
from pyecho.source.source import Source
from pyecho.state.check import SavedState
from pyecho.state.reshard import of_rank
from pyecho.state.state import flow_after, whole_state
from pyecho.stats import EchoStats
from pyecho.tools.advise.model import Advice

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack


Init = TypeVar("Init", bound=Callable[..., None])


def with_options(init: Init) -> Init:
    """Have help() and completion show every option with its default in the place of `**options`."""
    own, options = inspect.signature(init), inspect.signature(Config).parameters
    shown = [each for each in own.parameters.values() if each.kind is not each.VAR_KEYWORD]
    shown += [options[name] for name in Options.__annotations__]
    init.__signature__ = own.replace(parameters=shown)  # type: ignore[attr-defined]
    return init


class EchoLoader:
    """Iterate a source with each of its items used several times, shuffled.

    ::

        source ──▶ pool of distinct items ──▶ e uses of each, drawn at random ──▶ batches

        for batch in EchoLoader(source, factor=3, batch_size=64): ...

    With ``batch_size=None`` (batch echoing) items pass through by reference, whatever they are,
    and are never copied. With a `batch_size` (example echoing) items are examples, or batches
    that `unbatch` splits, and new batches are assembled natively from their uses; such batches are
    private and writable. The output depends on the source, the arguments and the epoch, not on
    threads or timing. See the README for the paper's variants.

    Each ``iter()`` is one epoch: one pass over the source, which begins with the first ``next()``.
    A loader has one iteration at a time: the next one ends an unfinished one, whose iterator then
    raises `Closed`. Over an iterator, which cannot be read again, the next one goes on where the
    unfinished one was left, with a warning. Slots, batches and threads serve all epochs.

    Lists, tuples, ranges, arrays, tensors and Arrow tables in memory are read in the consumer's
    thread. All other sources are read in a thread of the loader, in the context (`contextvars`,
    torch's grad mode, autocast, devices) of the thread that began the epoch. Every epoch's number
    is told to the source, its ``sampler``, ``batch_sampler`` and ``dataset``, if they have a
    ``set_epoch``.

    Parameters
    ----------
    source
        Any iterable, an array, tensor or tuple of arrays (their rows), an Arrow table or stream
        (``__arrow_c_stream__``: its rows; in batch echoing its record batches), a dataset or shard
        of Ray Data (likewise), or a map-style dataset (``__getitem__`` and ``__len__``); for
        several epochs one that can be read again.
    factor
        How often each item is used: an int, or a float whose fraction of the items gets one more
        use. A pass of N items has ``floor(N * factor + 0.5)`` uses. Where N is known beforehand,
        the items with one more use are a random choice; else they are spread evenly. Or an
        `Adaptive`, which uses items as often as the source's speed makes necessary.
    batch_size
        Rows of a batch (example echoing), or None (batch echoing).
    unbatch
        The source yields batches: split them into examples first.
    shuffle_buffer
        Distinct items among which each use is drawn; 0 or 1 means that repeats follow each other.
        None: ten batches in example echoing, 0 in batch echoing.
    unique_in_batch
        Never put an item into one batch twice. Needs ``shuffle_buffer >= batch_size``.
    drop_last
        Leave out batches with fewer than `batch_size` rows.
    pad_last
        Fill the last batch of each epoch by additional uses of the items that were in the pool last
        (`EchoInfo`), so that all batches have `batch_size` rows. With `unique_in_batch` there may
        be several such batches.
    seed
        Selects the random numbers, together with the epoch.
    epochs
        Let so many passes flow into each other: the source goes on with the next pass while the
        pool keeps its items, and only the last pass drains. Each iteration has as many batches as
        without. None: each epoch drains the pool.
    steps_per_epoch
        Let each iteration have so many batches, whatever the length of the source, which is read
        over and over; the pool is kept between iterations.
    shards
        Deal the items to so many independent streams, by turns, and take the uses of a batch from
        one after the other, each of which has its own pool and draws. All end together: a stream
        that runs short makes additional uses (`EchoInfo`). With the ``group=`` of
        `pyecho.torch.EchoLoader` the streams are dealt to the ranks, so that any number of ranks
        that divides `shards` makes the same global batches. None: one for each rank.
    prefetch
        Batches (in batch echoing items) made ahead of the consumer; of small ones as many as 4 MiB
        hold, up to 32 batches or 256 items.
    threads
        Native threads that assemble batches ahead of the consumer; 0: the consumer's thread does
        everything, reading included (but with an adaptive factor). None: as many as pay.
    collate_fn
        Example echoing: ``collate_fn(examples)`` makes a batch of a list of examples, on every use,
        in the threads of `augment`; examples then travel by reference and may be anything.
    augment
        ``augment(batch, rng)`` is called on every use, with a `numpy.random.Generator` seeded by
        (seed, epoch, number of the batch); what it returns is what the loader yields. Random
        functions of torch draw from a generator seeded likewise.
    augment_workers
        Threads that call `collate_fn` and `augment`; 0 is one. The output is the same for any
        number.
    memory
        Memory of batches: ``"pageable"``, or ``"pinned"`` memory of PyTorch's, from
        which a CUDA device can copy while everybody goes on (in `pyecho.torch.EchoLoader` only; a
        batch leaves with its memory, which `max_bytes` does not count then); ``"auto"`` is pinned
        if a device is in use.
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

    @with_options
    def __init__(
        self, source: Any, factor: float | Adaptive = 2, **options: Unpack[Options]
    ) -> None:
        if self._group is None and (options.get("shards") is not None or options.get("pad_last")):
            self._group = Alone()
        unknown = set(options) - set(Options.__annotations__)
        if unknown:
            raise TypeError(
                f"{type(self).__name__}() got an unexpected keyword argument {min(unknown)!r}; "
                f"the options are {', '.join(Options.__annotations__)}"
            )
        rank, ranks = (0, 1) if self._group is None else (self._group.rank, self._group.size)
        self._config = Config(factor=factor, **options, rank=rank, ranks=ranks)
        if self._config.memory == "pinned" and self._adapter.allocate is None:
            raise ConfigError(
                "memory='pinned' needs pyecho.torch.EchoLoader: PyTorch's allocator knows when a "
                "copy to a device has read a batch"
            )
        self._source = Source(
            source,
            batch_size=self._config.batch_size,
            unbatch=self._config.unbatch,
            collated=self._config.collate_fn is not None,
        )
        if isinstance(source, EchoLoader) and source._group is not None and source._group.size > 1:
            raise ConfigError(
                "the inner loader has a group, whose ranks would talk in a thread of this one; "
                "give the group to this loader alone"
            )
        if isinstance(source, EchoLoader) and self._config.batch_size is None:
            # The outer pool keeps batches of the inner loader: no reason for it to warn.
            config = self._config
            source._run.held += config.capacity + config.prefetch + 1 + config.held_by_link
            self._source.scarce = True
        if self._group is not None:
            self._longest = longest(self._group, self._source.items())
        self._run: Run = self._new_run()
        if self._config.progress:
            require_tqdm()

    def __repr__(self) -> str:
        """Show the source's type and the arguments that matter most."""
        config = self._config
        factor = config.adaptive or f"{config.most_uses:g}"
        shown = [type(self._source.object).__name__, f"factor={factor}"]
        if config.batch_size is not None:
            shown.append(f"batch_size={config.batch_size}")
        if config.capacity > 1:
            shown.append(f"shuffle_buffer={config.capacity}")
        return f"{type(self).__module__}.{type(self).__name__}({', '.join(shown)})"

    def _repr_html_(self) -> str:
        """Show a notebook the stages and what they have done so far."""
        from pyecho.tools.html import html_of

        source = type(self._source.object).__name__
        return html_of(repr(self), source, self._config, self.stats())

    def __getstate__(self) -> dict[str, Any]:
        """Return what copies and pickles hold: source, options and epoch, not the threads.

        And a state that was loaded, until an iteration goes on there.
        """
        return self.__dict__ | {"_run": self._run.copied()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Go on with the next epoch."""
        self.__dict__.update(state)
        self._run = self._new_run()
        self._run.restore(*state["_run"])

    # ------------------------------------------------------------ iteration

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator for the next epoch, which begins with its first ``next()``."""
        batches = self._run.iterate()
        if not self._config.progress:
            return batches
        return shown(batches, operator.length_hint(self) or None, self._run.stats)

    def _new_run(self) -> Run:
        source, config = self._source, self._config
        return Run(
            source,
            config,
            partial(Stages, adapter=self._adapter),
            # An adaptive factor compares the speeds of two threads.
            by_consumer=(source.in_memory or config.threads == 0)
            and not (config.linked or config.adaptive or source.native),
            group=self._group,
        )

    # ------------------------------------------------------------ length, epochs, statistics

    def __len__(self) -> int:
        """Return the number of batches of an epoch, the same for every epoch.

        Raises `TypeError` where it cannot be known: the source does not tell how many items or
        examples it has, or `unique_in_batch` leaves it to the draws, or an `Adaptive` factor to the
        source's speed. `steps_per_epoch` decides it.
        """
        items = self._items() if self._config.steps_per_epoch is None else None
        batches = self._config.batches_of(items)
        if batches is not None:
            return batches
        if items is None:
            what = "examples" if self._config.unbatch else "items"
            raise TypeError(
                f"the source ({type(self._source.object).__name__}) does not tell how many {what} "
                "it has, so this loader has no len(); where you know better, pass steps_per_epoch="
            )
        why = "with unique_in_batch=True the number of batches depends on the draws"
        if self._config.adaptive is not None:
            why = "with an adaptive factor the number of batches depends on the source's speed"
        raise TypeError(f"{why}; to fix it, pass steps_per_epoch=")

    def _items(self) -> int | None:
        """Return the items of a pass, with several ranks those of the longest one."""
        if self._group is None:
            return self._source.items()
        return self._longest if self._run.longest is None else self._run.longest

    def set_epoch(self, epoch: int) -> None:
        """Choose the number of the next epoch, which with the seed selects the random numbers.

        Ends an unfinished iteration. A source, sampler or dataset with a ``set_epoch`` of its own
        is told as well. The number that comes next anyway changes nothing.
        """
        epoch = checked_int("epoch", epoch, 0, 2**63)
        if epoch == self._run.epoch + 1 and self._run.flows_from_saved_end:
            for _ in self._run.iterate():  # no batch is left
                pass
        self._run.set_epoch(epoch)
        if not (self._run.flows and self._run.epoch == epoch):  # else its pass has begun
            self._source.tell_epoch(epoch)

    # ------------------------------------------------------------ states

    def state_dict(self, *, payload: bool = True) -> dict[str, Any]:
        """Return where the consumer is: a loader that loads it goes on with the next batch.

        What follows is the same, bit for bit, in a new process and with any `threads`, `prefetch`,
        `memory` and `augment_workers`. Call it between two batches, in the consumer's thread: after
        the last batch of an epoch the (empty) rest of that epoch follows, after its end the next
        epoch. It is a nest of dicts, lists, numbers, strings and NumPy arrays; what travels by
        reference, and what `augment` makes, is in it as it is. It may share memory with the loader
        in batch echoing: save or copy it before you go on.

        A source with a ``state_dict`` and ``load_state_dict``, of its own or of its iterators, goes
        on by them. Every other source must yield the same items again: it is read from the
        beginning of the pass, or by index where it has indices.

        Parameters
        ----------
        payload
            Save the items that are not used up. Without them the state is small, and they are read
            from the source again.

        Raises
        ------
        EchoError
            If a thread is inside ``next()``, if an error of the source is about to reach the
            consumer, or, where the source has a state of its own, without the payload or after the
            beginning of an epoch was cut short.
        """
        return whole_state("loader", self._config, *self._run.state(payload))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was called. The next ``iter()`` begins with the next batch.

        `state` may also be that of a whole run, see `pyecho.torch.distributed.merge`.
        Ends an unfinished iteration. The source, `factor`, and the options that decide the output
        must be those of the loader whose state it is. `stats` starts from what this loader does,
        and ``len()`` stays that of whole epochs.

        Raises
        ------
        CheckpointError
            If the state is damaged, or that of other options; at the first ``next()`` also if the
            source has other items. Nothing in a state is ever called.
        """
        config = self._config
        self._run.load(SavedState.read(of_rank(state, config.rank, config.ranks), "loader", config))

    def skip_first_batches(self, count: int) -> None:
        """Have the next ``iter()`` begin behind the first `count` batches of its epoch.

        These are planned, but not made: of a source with indices only the items that are still
        needed are read, of any other one all that come before the next batch. ``len()`` stays that
        of the whole epoch.

        Raises
        ------
        ConfigError
            If the epoch has fewer batches; with `unique_in_batch` the first ``next()`` raises
            `CheckpointError`.
        EchoError
            If an iteration is under way, or if more than the number of batches decides what comes
            next: an `Adaptive` factor, a state of the source's own, a source that does not tell
            its length. Use `state_dict` there.
        """
        count = checked_int("count", count, 0, 2**62)
        if self._group is not None:
            raise EchoError(
                "skip_first_batches() knows nothing of other ranks, shards and pad_last; use "
                "state_dict()"
            )
        if self._run.unfinished:
            raise EchoError("skip_first_batches() is for the time between two iterations")
        items = self._source.items()
        if self._config.adaptive or self._source.stateful is not None or items is None:
            raise EchoError(
                "to skip batches, the factor must be a number, and the source must tell its length "
                "and have no state of its own; use state_dict() and load_state_dict() here"
            )
        batches = self._config.batches_of(items)
        if batches is not None and count > batches:
            raise ConfigError(f"count must be at most {batches}, the batches of an epoch")
        epoch, iterations = self._run.place
        flow = flow_after(
            count, config=self._config, items=items, epoch=epoch, iterations=iterations
        )
        self.load_state_dict(whole_state("loader", self._config, self._run.epoch, flow, None))

    def stats(self) -> EchoStats:
        """Return counts and times over all epochs of this loader, the running one included."""
        return self._run.stats()

    def trace(self, path: str | os.PathLike[str]) -> Trace:
        """Record what each thread does while a ``with`` block runs, and write a Chrome trace.

            with loader.trace("run.json"):  # open it in https://ui.perfetto.dev
                for batch in loader: ...

        The file is written at the end of the block, also if that raises. Loaders may run when the
        trace begins or ends, and those inside or beside this one are recorded as well. See
        docs/tracing_and_advice.md for what the spans mean.

        Raises `ConfigError` on entry if the file has no folder, `EchoError` if another trace is
        being recorded.
        """
        return Trace(path)

    def advise(self, step: Callable[[Any], object] | None = None, *, steps: int = 100) -> Advice:
        """Measure this pipeline, and say which echo factor fits it and what limits it.

            print(loader.advise(train_step))

        Runs it twice for about `steps` batches: freely, to measure the source by itself, then with
        ``step(batch)``, your training step, at e = 8. The step should wait for its device
        (``torch.cuda.synchronize()``), or its time is not seen. Without one, a consumer of the
        speed that `stats` has seen so far is imitated, if there is any.

        Both runs use the source, but not the epochs of this loader: call it before an iteration
        begins. ``pyecho advise`` does the same from the command line.

        Raises
        ------
        ConfigError
            If the source is an iterator, whose items would be lost.
        EchoError
            If an iteration of this loader is under way, if the source ends within a few batches,
            or while a trace is being recorded.
        """
        from pyecho.tools.advise.measure import measured_advice

        if self._source.one_shot:
            raise ConfigError(
                f"the source ({type(self._source.object).__name__}) is an iterator, and advise() "
                "would use up its items; pass something that can be iterated again, or use the "
                "command pyecho advise with a function that makes the loader"
            )
        if self._run.unfinished or self._run.flows:
            raise EchoError(
                "advise() reads the source, which the iteration of this loader is reading; call it "
                "before the first one, or after its end"
            )
        stats = self.stats()
        if step is None and stats.batches:
            seconds = stats.downstream_seconds / stats.batches
            step = lambda batch: time.sleep(seconds)  # noqa: E731
        steps = checked_int("steps", steps, 1, 2**31)
        return measured_advice(lambda: (self, step), steps)

    # ------------------------------------------------------------ other libraries

    def to_tf_dataset(self) -> Any:
        """Return a `tf.data.Dataset` of the batches; each iteration of it is one of this loader.

        Dicts, tuples and namedtuples stay what they are, with a tensor for each array; lists of
        texts become tensors of them, other nodes tuples, or dicts if they have names. The shapes
        are those of the first batch, which is read now; the first axis is None unless all batches
        have as many rows. A dataset left within its first two batches, as by Keras, to look at
        them, yields them again; otherwise leaving it ends the iteration, as leaving the loader
        does. TensorFlow turns errors into its own.

        Raises
        ------
        ConfigError
            If the source is empty, or a batch has objects that are neither numbers nor texts.
        """
        return self._to_tf_dataset()

    def to_keras(self) -> Any:
        """Return what ``fit``, ``evaluate`` and ``predict`` of a Keras 3 model take.

            model.fit(loader.to_keras(), epochs=3, validation_data=other.to_keras())

        Batches are ``(inputs, targets)`` or ``(inputs, targets, weights)``. Each epoch of Keras is
        one iteration, in the loader's order whatever ``shuffle`` says. It is a
        `keras.utils.PyDataset`, or with TensorFlow as the backend a `tf.data.Dataset` (pass
        ``shuffle=False`` there, or Keras warns that it does not shuffle).

        Raises
        ------
        ConfigError
            If the loader does not know its length (pass `steps_per_epoch` to it), or has
            `with_info`.
        """
        from pyecho.integrations.keras import keras_data

        if self._config.with_info:
            raise ConfigError("Keras has no place for an EchoInfo; leave out with_info=True")
        return keras_data(self, self._to_tf_dataset, self._for_keras)

    def _to_tf_dataset(self, form: Callable[[Any], Any] = lambda batch: batch) -> Any:
        from pyecho.integrations.tf import tf_dataset

        rows = self._static_rows()
        return tf_dataset(self, as_array=self._adapter.as_array, rows=rows, form=form)

    def _static_rows(self) -> int | None:
        """Return how many rows all batches have, None if one may be short."""
        config = self._config
        return config.batch_size if config.drop_last or config.pad_last else None

    def _for_keras(self, batch: Any) -> Any:
        return batch

    def _variant(self, **changes: Any) -> Self:
        """Return a loader of the same source, whose options are these and else the same."""
        variant = copy.copy(self)
        variant._group = Alone() if self._config.pad_last else None
        alone: dict[str, Any] = {"shards": None, "rank": 0, "ranks": 1}
        variant._config = replace(self._config, progress=False, **alone, **changes)
        variant._run = variant._new_run()
        return variant

    # ------------------------------------------------------------ end

    def close(self) -> None:
        """Stop the iteration of this loader; its iterator then raises `Closed`. Idempotent."""
        self._run.close()
        self._run.join()

    def __enter__(self) -> Self:
        """Return the loader."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the loader."""
        self.close()
