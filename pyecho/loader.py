"""The loader: wraps a source and yields its items echoed and shuffled."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyecho._core import ConfigError, EchoError
from pyecho.base_loader import BaseLoader
from pyecho.checked import checked_int
from pyecho.run.saving import skipped
from pyecho.source import source_of
from pyecho.state.position import whole_state

if TYPE_CHECKING:
    from typing_extensions import Self

    from pyecho.tools.advise.model import Advice
    from pyecho.worth import Worth

_SUCCESSORS = {
    "to_keras": "model.fit((batch for _ in range(epochs) for batch in loader), epochs=epochs, "
    "steps_per_epoch=len(loader)), with TensorFlow pyecho.integrations.tf.to_tf_dataset(loader)",
    "to_tf_dataset": "pyecho.integrations.tf.to_tf_dataset(loader)",
    "trace": "pyecho.trace(path), which records all loaders of the process",
}


class EchoLoader(BaseLoader):
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
        in the threads of `augment` and with torch's random functions seeded as there; examples then
        travel by reference and may be anything.
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

    if not TYPE_CHECKING:  # otherwise every name would be right for type checkers

        def __getattr__(self, name):
            """Name the successor of a method that is gone."""
            if name in _SUCCESSORS:
                raise AttributeError(f"a loader has no {name}(); use {_SUCCESSORS[name]}")
            return object.__getattribute__(self, name)  # raises the error that led here

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

    def advise(
        self,
        step: Callable[[Any], object] | None = None,
        *,
        steps: int = 100,
        epochs: int | None = None,
        worth: Worth | None = None,
    ) -> Advice:
        """Measure this pipeline, and say what limits it and what to do: to echo, or something else.

            print(loader.advise(train_step))

        Runs it twice for about `steps` batches: freely, to measure the source by itself, then with
        ``step(batch)``, your training step, at e = 8. The step should wait for its device
        (``torch.cuda.synchronize()``), or its time is not seen. Without one, a consumer of the
        speed that `stats` has seen so far is imitated, if there is any. A source that is slower
        than the rest also runs with one and with two workers, if it has items by index. All runs
        use the source, but not the epochs of this loader. ``pyecho advise`` does the same from the
        command line.

        Parameters
        ----------
        epochs
            Passes of the training, because some remedies pay from the second one on; None: many.
        worth
            A `Worth` that has observed a run, for what repeats are worth in this task. Without one
            that knows, up to four uses count as fresh examples do, and more as four. It forgets
            what `step` has it observe here.

        Raises
        ------
        ConfigError
            If the source is an iterator, whose items would be lost, or if ``worth`` is no `Worth`.
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
        of_run = self._run.epochs
        if of_run.unfinished or of_run.flows:
            raise EchoError(
                "advise() reads the source, which the iteration of this loader is reading; call it "
                "before the first one, or after its end"
            )
        stats = self.stats()
        if step is None and stats.batches:
            seconds = stats.downstream_seconds / stats.batches
            step = lambda batch: time.sleep(seconds)  # noqa: E731
        steps = checked_int("steps", steps, 1, 2**31)
        if epochs is not None:
            epochs = checked_int("epochs", epochs, 1, 2**31)
        return measured_advice(lambda: (self, step), steps, epochs, worth)

    def skip_first_batches(self, count: int) -> None:
        """Have the next ``iter()`` begin after the first `count` batches of its epoch.

        Of a source with indices only the items that are still needed are read, of any other one all
        that come before the next batch. ``len()`` stays that of the whole epoch.

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
        epochs = self._run.epochs
        if epochs.left:
            self._run.seek(epochs.number + 1)  # which ends that iteration
        if not (epochs.unfinished or epochs.flows):
            self._source.set_epoch(epochs.number)  # which may decide the length
        state = skipped(epochs, count, self._items(), self._adapter)
        self.load_state_dict(whole_state(self._config, **state))

    def _static_rows(self) -> int | None:
        """Return how many rows all batches have, None if one may be short."""
        config = self._config
        return config.batch_size if config.drop_last or config.pad_last else None

    def _variant(self, source: Any = None, **changes: Any) -> Self:
        """Return a loader of the same source or this one, with these options and else the same."""
        variant = copy.copy(self)
        variant._group = None
        variant._config = replace(
            self._config, progress=False, shards=None, rank=0, ranks=1, **changes
        )
        if source is not None:
            variant._source = source_of(source, variant._config)
        variant._run = variant._new_run()
        if self._run.epochs.wiring.reads_few:  # of another loader, which counts its batches
            variant._run.epochs.wiring.reads_few = True
        return variant
