"""Recognises kinds of objects of other libraries, and asks them for lengths, epochs and states."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from pyecho._core import ConfigError
from pyecho.checked import MOST_COUNTED

EXPORTS = ("__arrow_c_stream__", "__arrow_c_array__")
"""Methods that export Arrow data: as a stream, or, where there is none, a single array."""

STREAMS = ("to_reader", "scanner", "to_batches", "iter_batches")
"""Methods that make an Arrow stream, of what cannot be iterated: pyarrow's datasets and files."""


def tell_epoch(given: Any, epoch: int) -> None:
    """Call ``set_epoch(epoch)`` of an object and of its parts, see `Source.set_epoch`."""
    targets = [given]
    if not getattr(type(given), "_tells_epochs", False):  # a loader may be passes ahead
        targets.append(getattr(given, "sampler", None))
        sampler = getattr(given, "batch_sampler", None)
        while sampler is not None and len(targets) < 8:  # Accelerate puts one into another
            targets += [sampler, getattr(sampler, "sampler", None)]
            sampler = getattr(sampler, "batch_sampler", None)
        targets.append(getattr(given, "dataset", None))
    for target in {id(target): target for target in targets}.values():
        set_epoch = getattr(target, "set_epoch", None)
        if callable(set_epoch):
            set_epoch(epoch)


def has_special(given: Any, name: str) -> bool:
    """Return True if Python finds the special method `name` of `given`."""
    return getattr(type(given), name, None) is not None


def is_arrow(given: Any) -> bool:
    """Return True if a source is read as an Arrow stream or array.

    Not a DataFrame of pandas: its index would be one column more, and each NaN a null.
    """
    if any(has_special(given, name) for name in EXPORTS):
        return not has_special(given, "iloc")
    return not any(has_special(given, name) for name in ("__iter__", "__getitem__")) and any(
        callable(getattr(type(given), name, None)) for name in STREAMS
    )


def is_record_batch(item: Any) -> bool:
    """Return True for a record batch or table of pyarrow."""
    pyarrow = sys.modules.get("pyarrow")
    return pyarrow is not None and isinstance(item, pyarrow.RecordBatch | pyarrow.Table)


def length_of(given: Any) -> int | None:
    """Return ``len(given)``, or None if it has none. Raises `ConfigError` if it is too large."""
    try:
        length = len(given)
    except (TypeError, NotImplementedError):
        return None
    except OverflowError:
        length = MOST_COUNTED + 1
    if length > MOST_COUNTED:
        raise ConfigError(
            f"the length of {type(given).__name__} is more than the {MOST_COUNTED} items that are "
            "counted; a source without end needs no len(), and steps_per_epoch="
        )
    return length


# ------------------------------------------------------------ states


class StateMethods(NamedTuple):
    """The methods of an object with a state of its own."""

    take: Callable[[], Any]
    load: Callable[[Any], Any]


def state_methods(value: Any) -> StateMethods | None:
    """Return the methods to take and to load a state, that want no more arguments; else None."""
    for names in (("state_dict", "load_state_dict"), ("get_state", "set_state")):  # torch, Grain
        take, load = (getattr(value, name, None) for name in names)
        if not (callable(take) and callable(load)):
            continue
        try:
            inspect.signature(take).bind()
        except TypeError:  # MosaicML's StreamingDataset wants to be told how far it was read
            continue
        except ValueError:  # it tells no signature
            pass
        return StateMethods(take, load)
    return None


# ------------------------------------------------------------ loaders of batches


class Told(NamedTuple):
    """The examples of a loader, None where it does not tell."""

    in_all: int | None = None
    in_first: int | None = None  # of its batches


def examples_of(loader: Any) -> Told:
    """Return how many examples the batches of a loader have.

    Knows `torch.utils.data.DataLoader` and the loaders of torchdata, MONAI, timm and fastai; of
    others it is unknown. Trusts the ``collate_fn`` to keep every example: one that makes several
    rows of an example, or drops some, shows by another number of rows in the first batch.
    """
    data = sys.modules.get("torch.utils.data")
    if data is None or not _keeps_batches(loader):
        return Told()
    if not isinstance(loader, data.DataLoader):
        length = getattr(type(loader), "__len__", None)
        if getattr(length, "__module__", "") == "fastai.data.load":
            return _batched(loader.n, loader.bs, loader.drop_last)
        inner = getattr(loader, "loader", None)  # timm's PrefetchLoader
        return examples_of(inner) if isinstance(inner, data.DataLoader) else Told()
    if isinstance(loader.dataset, data.IterableDataset):
        return Told()
    sampler = loader.batch_sampler
    if type(sampler).__name__ == "_RepeatSampler":  # timm's MultiEpochsDataLoader
        sampler = sampler.sampler
    times = getattr(loader, "repeats", 1)  # MONAI's ThreadDataLoader
    if isinstance(sampler, list | tuple):
        sizes = list(map(len, sampler))
        return Told(times * sum(sizes), sizes[0]) if sizes else Told(0, 0)
    if getattr(sampler, "even_batches", False) and sampler.batch_size:  # Accelerate's, of one rank
        ranks = sampler.num_processes if sampler.split_batches else 1
        size = int(sampler.batch_size)
        return Told(len(sampler) * size // ranks, size // ranks)  # it begins anew to fill the last
    if not isinstance(sampler, data.BatchSampler) or not _keeps_batches(sampler):
        return Told()  # also where batch_size=None: the dataset decides what an item is
    return _batched(length_of(sampler.sampler), sampler.batch_size, sampler.drop_last, times)


def _batched(examples: int | None, batch_size: int | None, drop_last: bool, times: int = 1) -> Told:
    if examples is None or batch_size is None:
        return Told()
    kept = examples - (examples % batch_size if drop_last else 0)
    return Told(times * kept, min(kept, batch_size))


def _keeps_batches(source: Any) -> bool:
    """Return True unless another package's subclass may skip or repeat batches."""
    module = getattr(getattr(type(source), "__iter__", None), "__module__", "")
    return module.split(".")[0] in ("torch", "torchdata", "timm", "monai", "fastai")
