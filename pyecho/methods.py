"""Methods of a loader that look at it."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from pyecho._core import ConfigError, EchoError
from pyecho.checked import checked_int
from pyecho.config import Config
from pyecho.items.spec import Adapter
from pyecho.run.extent import Group
from pyecho.run.run import Run
from pyecho.run.saving import skipped
from pyecho.source import Source, source_of
from pyecho.state.position import whole_state
from pyecho.stats import EchoStats

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


class LoaderTools:
    """The part of `pyecho.EchoLoader` that the data does not pass."""

    _adapter: ClassVar[Adapter]
    _config: Config
    _group: Group | None
    _run: Run
    _source: Source

    def _new_run(self) -> Run:
        raise NotImplementedError

    def _items(self) -> int | None:
        raise NotImplementedError

    if not TYPE_CHECKING:  # otherwise every name would be right for type checkers

        def __getattr__(self, name):
            """Name the successor of a method that is gone."""
            if name in _SUCCESSORS:
                raise AttributeError(f"a loader has no {name}(); use {_SUCCESSORS[name]}")
            return object.__getattribute__(self, name)  # raises the error that led here

    def stats(self) -> EchoStats:
        """Return counts and times over all epochs of this loader, the running one included."""
        return self._run.epochs.stats()

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
            If the source is an iterator, whose items would be lost, or if `worth` is no `Worth`.
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
        loader: Any = self
        return measured_advice(lambda: (loader, step), steps, epochs, worth)

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
        loader: Any = self
        loader.load_state_dict(whole_state(self._config, **state))

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
