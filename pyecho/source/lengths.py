"""Lengths: how many items a source has, and how many examples the batches of a `DataLoader`."""

from __future__ import annotations

import sys
from typing import Any

_KEEP_BATCHES = ("torch", "torchdata", "timm", "monai", "fastai")
"""Packages whose loaders and samplers yield what their attributes say, once in each pass."""


def length_of(source: Any) -> int | None:
    """Return ``len(source)``, or None if it has no length."""
    try:
        return len(source)
    except (TypeError, NotImplementedError):
        return None


def examples_of(loader: Any) -> int | None:
    """Return how many examples the batches of a loader have in all, None if that is unknown.

    Knows `torch.utils.data.DataLoader` and the loaders of torchdata, MONAI, timm and fastai. Trusts
    the ``collate_fn`` to keep every example, see `rows_told`.
    """
    told = _told(loader)
    return None if told is None else told[0]


def rows_told(loader: Any) -> int | None:
    """Return how many rows the first batch must have if `examples_of` is right; None: any number.

    A ``collate_fn`` that makes several rows of an example, or drops some, shows by that.
    """
    told = _told(loader)
    return None if told is None else told[1]


def _told(loader: Any) -> tuple[int, int] | None:
    """Return the number of examples, and how many of them the first batch has."""
    data = sys.modules.get("torch.utils.data")
    if data is None or not _keeps_batches(loader):
        return None
    if not isinstance(loader, data.DataLoader):
        if getattr(type(loader).__len__, "__module__", "") == "fastai.data.load":
            return _batched(loader.n, loader.bs, loader.drop_last)
        inner = getattr(loader, "loader", None)  # timm's PrefetchLoader
        return _told(inner) if isinstance(inner, data.DataLoader) else None
    if isinstance(loader.dataset, data.IterableDataset):
        return None
    sampler = loader.batch_sampler
    if type(sampler).__name__ == "_RepeatSampler":  # timm's MultiEpochsDataLoader
        sampler = sampler.sampler
    times = getattr(loader, "repeats", 1)  # MONAI's ThreadDataLoader
    if isinstance(sampler, list | tuple):
        sizes = list(map(len, sampler))
        return (times * sum(sizes), sizes[0]) if sizes else (0, 0)
    if getattr(sampler, "even_batches", False) and sampler.batch_size:  # Accelerate's, of one rank
        ranks = sampler.num_processes if sampler.split_batches else 1
        size = int(sampler.batch_size)
        return len(sampler) * size // ranks, size // ranks  # it begins anew to fill the last
    if not isinstance(sampler, data.BatchSampler) or not _keeps_batches(sampler):
        return None  # also where batch_size=None: the dataset decides what an item is
    told = _batched(length_of(sampler.sampler), sampler.batch_size, sampler.drop_last)
    return None if told is None else (times * told[0], told[1])


def _batched(
    examples: int | None, batch_size: int | None, drop_last: bool
) -> tuple[int, int] | None:
    if examples is None or batch_size is None:
        return None
    kept = examples - (examples % batch_size if drop_last else 0)
    return kept, min(kept, batch_size)


def _keeps_batches(source: Any) -> bool:
    """Return True unless another package's subclass may skip or repeat batches."""
    module = getattr(getattr(type(source), "__iter__", None), "__module__", "")
    return module.split(".")[0] in _KEEP_BATCHES
