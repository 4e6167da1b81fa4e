"""Warnings of a loader that does what its user may not expect."""

from __future__ import annotations

from pyecho.config import Config
from pyecho.source import Source
from pyecho.warn import warn


def warn_of_going_on(source: Source) -> None:
    """Warn that an iteration begins in the middle of a source."""
    warn(
        f"the source ({type(source.object).__name__}) is an iterator, and an "
        "iteration over it was left half-way: this one goes on where that one was left; "
        "for epochs of their own pass something that can be iterated again",
        RuntimeWarning,
    )


def warn_of_nothing(source: Source, read: int) -> None:
    """Warn that a source is empty; `read`: items that were taken from it before."""
    reason = "check its length and its filters"
    if source.one_shot and read > 0:
        reason = (
            "it is an iterator and has been read to its end; for several epochs pass something "
            "that can be iterated again (a list, a Dataset, a DataLoader, an object with "
            "__iter__)"
        )
    warn(f"the source ({type(source.object).__name__}) yielded nothing: {reason}", RuntimeWarning)


def warn_of_no_batch(config: Config, items: int) -> None:
    """Warn that an epoch has items, but no batch."""
    warn(
        f"the {items} items of the source, used {config.most_uses:g} times each, do not "
        f"fill one batch of {config.batch_size}, and drop_last=True drops it: the epoch "
        "has no batch; lower batch_size, or pass drop_last=False",
        RuntimeWarning,
    )


def warn_of_whole_source(source: Source, ranks: int) -> None:
    """Warn that every rank seems to read the whole source."""
    warn(
        f"the sources ({type(source.object).__name__}) of all {ranks} ranks begin with the same "
        "first item: pass each rank its own part, such as a DataLoader with a DistributedSampler, "
        "or rows[rank::ranks]",
        RuntimeWarning,
    )


def warn_of_more(source: Source, items: int | None) -> None:
    """Warn that the rest of a pass is dropped."""
    warn(
        f"the source ({type(source.object).__name__}) has more than the {items} items it tells: "
        "the rest of the pass is left out; have len() tell all items, or pass steps_per_epoch=",
        RuntimeWarning,
    )


def warn_of_other_rows(source: Source) -> None:
    """Warn that the length of a source cannot be trusted, which may have been asked for."""
    warn(
        f"the source ({type(source.object).__name__}) {source.unsure}: the loader goes on without "
        "a length, and what len(loader) has told is wrong; pass steps_per_epoch=",
        RuntimeWarning,
    )


def warn_of_other_length(source: Source, told: int, read: int) -> None:
    """Warn that a pass had another number of items than its source tells."""
    warn(
        f"the source ({type(source.object).__name__}) told {told} items and yielded {read}, so "
        "len(loader) was wrong; a collate_fn that makes more or fewer examples of a batch does "
        "that: have len() tell what comes, or pass steps_per_epoch=",
        RuntimeWarning,
    )
