"""The loader for Hugging Face Accelerate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, count, islice, repeat
from operator import length_hint
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakValueDictionary

try:
    import accelerate
    from accelerate.data_loader import DataLoaderDispatcher, DataLoaderShard, DataLoaderStateMixin
    from accelerate.state import GradientState
except ImportError as error:
    raise ImportError(
        "pyecho.integrations.accelerate needs Accelerate: pip install accelerate"
    ) from error

import torch
from torch.utils.data import IterableDataset

import pyecho.torch
from pyecho._core import CheckpointError, ConfigError
from pyecho.config import Factor, with_options
from pyecho.source.reader import Chained
from pyecho.source.sniff import examples_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pyecho.config import Options

__all__ = ["EchoLoader"]


class EchoLoader(pyecho.torch.EchoLoader, DataLoaderStateMixin):  # type: ignore[misc]
    """A `pyecho.torch.EchoLoader` over a `DataLoader` that Accelerate has prepared.

    ::

        model, optimizer, source = accelerator.prepare(model, optimizer, source)
        loader = EchoLoader(source, 3, accelerator=accelerator, batch_size=64, unbatch=True)

    Each process echoes its share of the source and has batches on its device. Accelerate is told of
    the last batch of an epoch when the consumer has it, so that gradients accumulate up to there.
    ``accelerator.save_state()`` and ``load_state()`` save and load the position of each process, in
    the order in which loaders were made; ``register_for_checkpointing`` knows only the first's.

    Parameters
    ----------
    source
        A `DataLoader` after ``accelerator.prepare`` or ``prepare_data_loader``. Its
        batches are read on the host, without a word to other processes. With ``collate_fn=list``
        they are lists of examples, which are echoed; then leave out `unbatch`, and pass the
        `collate_fn` that pads a batch to this loader.
    accelerator
        The `accelerate.Accelerator`.
    device
        As in `pyecho.torch.EchoLoader`, such as ``Device(accelerator.device, echo=True)``. None:
        the accelerator's, if it places batches.

    Raises
    ------
    ConfigError
        If the source is another one; if the first of several processes would read it for all, or
        would have to tell the others a random order; if gradients accumulate, and the loader has no
        length.
    """

    @with_options
    def __init__(
        self,
        source: Any,
        factor: Factor = 2,
        *,
        accelerator: accelerate.Accelerator,
        device: Any = None,
        **options: Unpack[Options],
    ) -> None:
        if device is None and accelerator.device_placement:
            device = accelerator.device
        super().__init__(_on_the_host(source), factor, device=device, **options)
        if accelerator.gradient_accumulation_steps > 1 and length_hint(self, -1) < 0:
            raise ConfigError(
                "Accelerate has to know the last batch of an epoch to end an accumulation of "
                "gradients there, and this loader has no len(); pass steps_per_epoch="
            )
        if accelerator not in _ADD_LOADER:
            _ADD_LOADER[accelerator] = _saved_with(accelerator)
        _ADD_LOADER[accelerator](self)

    # Attributes that skip_first_batches() needs.
    batch_size = prefetch_factor = None
    drop_last = False
    collate_fn = staticmethod(lambda batch: batch)

    @property
    def dataset(self) -> _WholeEpoch:
        """The batches of the next epoch, for ``accelerator.skip_first_batches(loader, n)``."""
        return _WholeEpoch(self)

    @property
    def taken_before(self) -> int:
        """Batches that were taken in the next epoch before the state that was loaded."""
        saved = self._run.epochs.saved
        return 0 if saved is None or saved.snapshot is None else saved.snapshot.taken[1]

    @property
    def gradient_state(self) -> GradientState:
        """State that all objects of Accelerate share."""
        return GradientState()

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator for the next epoch, which begins with its first ``next()``."""
        return _Epoch(self, super().__iter__())


class _Epoch(Iterator[Any]):
    """The batches of an epoch. Tells Accelerate of it, from its first batch until it is left.

    A batch is kept until Accelerate knows of it, so that none is lost to Ctrl-C.
    """

    _is_told = False

    def __init__(self, loader: EchoLoader, batches: Iterator[Any]) -> None:
        self._loader = loader
        self._batches = batches
        self._taken: list[Any] = []  # one batch at most; taken and kept in one call

    def __next__(self) -> Any:
        loader, taken = self._loader, self._taken
        if not taken:
            taken.extend(islice(self._batches, 1))
        if not taken:
            self._end()
            raise StopIteration
        if not self._is_told:
            loader.begin()
            loader.remainder = 0  # of examples that gather_for_metrics() would have to drop
            self._is_told = True
        flow = loader._run.epochs.flow
        loader.end_of_dataloader = flow is not None and flow.at_last_batch
        batch = taken[0]
        del taken[0]
        return batch

    def _end(self) -> None:
        if self._is_told:
            self._loader.end()
            self._is_told = False

    __del__ = _end


class _WholeEpoch(IterableDataset[Any]):
    """The batches of an epoch; None stands for each that was taken before a loaded state."""

    def __init__(self, loader: EchoLoader) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        before = self._loader.taken_before
        # An interrupt in iter() would end a chain that calls it.
        return chain(repeat(None, before), iter(self._loader))


_ADD_LOADER: WeakKeyDictionary[Any, Callable[[EchoLoader], None]] = WeakKeyDictionary()
"""Function that adds a loader to an accelerator, see `_saved_with`."""


def _saved_with(accelerator: Any) -> Callable[[EchoLoader], None]:
    """Return what adds loaders that an accelerator saves and loads: a file for each and rank.

    A loader has the number of those made before it, dead ones too. As many files as loaders are
    theirs in that order, whatever the numbers: a run may make its loader anew for every epoch.
    """
    loaders: WeakValueDictionary[int, EchoLoader] = WeakValueDictionary()
    numbers, process = count(), accelerator.process_index

    def numbered_files(folder: str) -> dict[Path, EchoLoader]:
        numbered = loaders.items()
        return {Path(folder, f"echo_loader_{n}_{process}.pt"): loader for n, loader in numbered}

    def saved(folder: str) -> list[Path]:
        files = Path(folder).glob(f"echo_loader_*_{process}.pt")
        return sorted(files, key=lambda file: int(file.name.split("_")[2]))

    def save(models: Any, weights: Any, folder: str) -> None:
        for file, loader in (numbered := numbered_files(folder)).items():
            save_state(loader, file)
        for file in saved(folder):  # of an earlier time
            if file not in numbered:
                file.unlink()

    def load(models: Any, folder: str) -> None:
        numbered, there = numbered_files(folder), saved(folder)
        wanted = there if len(there) == len(numbered) else list(numbered)
        for file, loader in zip(wanted, numbered.values(), strict=True):
            load_state(loader, file, "save_state() ran without this EchoLoader")

    accelerator.register_save_state_pre_hook(save)
    accelerator.register_load_state_pre_hook(load)
    return lambda loader: loaders.update({next(numbers): loader})


def save_state(loader: EchoLoader, file: Path) -> None:
    """Save a state that ``torch.load(weights_only=True)`` reads: if need be, without the items."""
    torch.save(loader.state_dict(payload=True), file)
    if torch.serialization.get_unsafe_globals_in_checkpoint(file):
        torch.save(loader.state_dict(payload=False), file)


def load_state(loader: EchoLoader, file: Path, why_missing: str) -> None:
    """Load a state that `save_state` has saved."""
    if not file.exists():
        raise CheckpointError(f"{file} is missing: {why_missing}, or fewer processes saved")
    loader.load_state_dict(torch.load(file, weights_only=True))


def _on_the_host(source: Any) -> Any:
    """Return the `DataLoader` of this process that Accelerate has put into `source`."""
    kind = type(source)  # not __class__, which it makes that of a DataLoader
    if issubclass(kind, DataLoaderDispatcher):
        if source.state.num_processes == 1:
            return _batches_of(source.base_dataloader)
        raise ConfigError(
            "in this source the first process reads for all of them (dispatch_batches), which "
            "would meet the communication of your model in another thread; pass to "
            "Accelerator() dataloader_config=DataLoaderConfiguration(dispatch_batches=False), "
            'to TrainingArguments() accelerator_config={"dispatch_batches": False}'
        )
    if not issubclass(kind, DataLoaderShard):
        raise ConfigError(
            "the source must be a DataLoader that went through accelerator.prepare(), got "
            f"{kind.__name__}; to shard another source yourself, use pyecho.torch.EchoLoader"
        )
    if source.rng_types and source.synchronized_generator is not None:
        raise ConfigError(
            "the first process would tell the others its random order in every epoch; pass to "
            "Accelerator() dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True), "
            'to TrainingArguments() accelerator_config={"use_seedable_sampler": True}'
        )
    return _batches_of(source.base_dataloader)


def _batches_of(loader: Any) -> Any:
    """Return a `DataLoader`, or the examples of one whose batches are lists of them."""
    return _Examples(loader) if _yields_lists(loader.collate_fn) else loader


def _yields_lists(collate_fn: Any) -> bool:
    """Return True for ``collate_fn=list`` and `Lists`, also where a Trainer has wrapped it."""
    inner = getattr(collate_fn, "data_collator", None)
    return any(given is list or isinstance(given, Lists) for given in (collate_fn, inner))


class Lists:
    """Returns lists of examples, and has the attributes of a collator, which does not run."""

    def __init__(self, collator: Any) -> None:
        self._collator = collator

    def __call__(self, examples: Sequence[Any]) -> list[Any]:
        """Return the examples."""
        return list(examples)

    def __getattr__(self, name: str) -> Any:
        if name == "_collator":  # copies ask before there is any
            raise AttributeError(name)
        return getattr(self._collator, name)


class _Examples:
    """The examples of a `DataLoader` whose batches are lists of them."""

    def __init__(self, loader: Any) -> None:
        self.batch_sampler, self.sampler = loader.batch_sampler, loader.sampler
        self.dataset = loader.dataset
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        return Chained(iter(self._loader), iter)

    def __len__(self) -> int:
        examples = examples_of(self._loader).in_all
        if examples is None:
            raise TypeError("the DataLoader does not tell how many examples it has")
        return examples
