"""Progress bars: the shuffle pool as it fills, then the epoch. Needs tqdm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pyecho._core import ConfigError
from pyecho.stats import EchoStats


def require_tqdm() -> Any:
    """Return tqdm's bar class, or raise `ConfigError` if it is not installed."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        raise ConfigError("progress=True needs tqdm: pip install tqdm") from None
    return tqdm


def filling(
    items: Iterator[Any], capacity: int, rows_of: Callable[[Any], int] | None
) -> Iterator[Any]:
    """Yield the items of a source under a bar, until the pool is full. `rows_of`: counts rows."""
    bar = require_tqdm()(total=capacity, desc="filling", leave=False, disable=capacity < 2)
    try:
        for item in items:
            if not bar.disable:
                bar.update(1 if rows_of is None else rows_of(item))
                if bar.n >= bar.total:
                    bar.close()
            yield item
            del item
    finally:
        bar.close()


def shown(
    batches: Iterator[Any], total: int | None, stats: Callable[[], EchoStats]
) -> Iterator[Any]:
    """Yield the batches under a bar that also shows what `stats` returns."""
    bar = None
    try:
        for batch in batches:
            if bar is None:
                bar = require_tqdm()(total=total, desc="echoing", unit="batch")
            if bar.update():  # it has been drawn, which it is a few times a second
                bar.set_postfix_str(_summary(stats()), refresh=False)
            yield batch
            del batch
        if bar is not None:
            bar.set_postfix_str(_summary(stats()))
    finally:
        if bar is not None:
            bar.close()


def _summary(stats: EchoStats) -> str:
    """Return the fill of the pool, R, uses per fresh item, and the share of uses that are fresh."""
    shown = {
        "fill": f"{stats.occupancy:.0%}",
        "R": f"{stats.ratio:.1f}",
        "e": f"{stats.effective_factor:.2f}",
        "fresh": f"{stats.fresh_share:.0%}",
    }
    return ", ".join(f"{name}={value}" for name, value in shown.items() if "nan" not in value)
