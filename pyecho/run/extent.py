"""Extents: how far the passes of an epoch go on this rank, and whether another one follows."""

from __future__ import annotations

from dataclasses import dataclass

from pyecho._core import ConfigError
from pyecho.checked import MAX_USES
from pyecho.config import Config
from pyecho.source import Source


@dataclass(frozen=True)
class Extent:
    """The rows and items of each pass of this rank."""

    items: int | None = None  # of a pass; None: unknown until the source ends
    uses: int | None = None  # of a pass; None: as many as the factor says
    longest: int | None = None  # items on the rank that has most: they decide the batches


def fits(config: Config, items: int, uses: int) -> bool:
    """Return True if the pool has room for so many uses of so many items in a pass."""
    return config.capacity_for(items) * -(-uses // max(1, items)) < MAX_USES


def may_have(config: Config, items: int, uses: int) -> bool:
    """Return True if a pass may have this many uses; more ranks may have longer passes."""
    least = config.uses_of(items)
    may = uses == least or (config.ranks > 1 and uses > least)
    return may and fits(config, items, uses)


def pass_follows(config: Config, source: Source, number: int) -> bool:
    """Return True if another pass follows the one of this number, in the same flow."""
    flows = config.steps_per_epoch is not None or number + 1 < (config.epochs or 0)
    return flows and not source.one_shot


def check_steps(config: Config, source: Source, length: int | None) -> None:
    """Raise `ConfigError` if passes with `steps_per_epoch` cannot be dealt to the streams."""
    if config.streams > 1 and (length is None or length % config.streams):
        raise ConfigError(
            "steps_per_epoch= with several shards per rank needs a source whose length is a "
            f"multiple of {config.streams} (shards / ranks) in every pass, and that of "
            f"{type(source.object).__name__} is {'unknown' if length is None else length}"
        )
