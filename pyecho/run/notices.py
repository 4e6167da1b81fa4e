"""Warnings of a loader that does what its user may not expect."""

from __future__ import annotations

import warnings

from pyecho.config import Config
from pyecho.source.source import Source


def warn_of_going_on(source: Source) -> None:
    """Warn that an iteration begins in the middle of a source."""
    warnings.warn(
        f"the source ({type(source.object).__name__}) is an iterator, and an "
        "iteration over it was left half-way: this one goes on where that one was left; "
        "for epochs of their own pass something that can be iterated again",
        RuntimeWarning,
        stacklevel=4,
    )


def warn_of_nothing(source: Source, fresh: int) -> None:
    """Warn that a source is empty; `fresh`: items that were taken from it before."""
    if source.one_shot and fresh > 0:
        reason = (
            "it is an iterator and has been read to its end; for several epochs pass something "
            "that can be iterated again (a list, a Dataset, a DataLoader, an object with "
            "__iter__)"
        )
    else:
        reason = "check its length and its filters"
    warnings.warn(
        f"the source ({type(source.object).__name__}) yielded nothing: {reason}",
        RuntimeWarning,
        stacklevel=6,
    )


def warn_of_no_batch(config: Config, items: int) -> None:
    """Warn that an epoch has items, but no batch."""
    warnings.warn(
        f"the {items} items of the source, used {config.most_uses:g} times each, do not "
        f"fill one batch of {config.batch_size}, and drop_last=True drops it: the epoch "
        "has no batch; lower batch_size, or pass drop_last=False",
        RuntimeWarning,
        stacklevel=5,
    )


def warn_of_whole_source(source: Source, ranks: int) -> None:
    """Warn that every rank seems to read the whole source."""
    warnings.warn(
        f"the sources ({type(source.object).__name__}) of all {ranks} ranks begin with the same "
        "first item: pass each rank its own part, such as a DataLoader with a DistributedSampler, "
        "or rows[rank::ranks]",
        RuntimeWarning,
        stacklevel=8,
    )


def warn_of_more(source: Source, items: int | None) -> None:
    """Warn that what is left of a pass is dropped."""
    warnings.warn(
        f"the source ({type(source.object).__name__}) has more than the {items} items it tells: "
        "the epoch ends with the uses that were agreed on, and the rest is dropped; have len() "
        "tell all items, or have no len()",
        RuntimeWarning,
        stacklevel=6,
    )
