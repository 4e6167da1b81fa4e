"""Progress bars: the shuffle pool as it fills, then the epoch. Needs tqdm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pyecho._core import ConfigError


def require_tqdm() -> Any:
    """Return tqdm's bar class, or raise `ConfigError` if it is not installed."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        raise ConfigError("progress=True needs tqdm: pip install tqdm") from None
    return tqdm


class Filling:
    """A bar for the first items, until the shuffle pool is full or the source ends."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._bar: Any = None

    def counted(self, items: Iterator[Any], rows_of: Callable[[Any], int] | None) -> Iterator[Any]:
        """Yield the items of a source, counting them; `rows_of`: their rows."""
        bar = self._bar = require_tqdm()(
            total=self._capacity, desc="filling", leave=False, disable=self._capacity < 2
        )
        for item in items:
            if not bar.disable:
                bar.update(1 if rows_of is None else rows_of(item))
                if bar.n >= bar.total:
                    bar.close()
            yield item
            del item

    def close(self) -> None:
        """Remove the bar, should it still be there."""
        if self._bar is not None:
            self._bar.close()


def shown(batches: Iterator[Any], total: int | None, filling: Filling) -> Iterator[Any]:
    """Yield the batches under a bar."""
    bar = None
    try:
        for batch in batches:
            if bar is None:
                filling.close()
                bar = require_tqdm()(total=total, desc="echoing", unit="batch")
            bar.update()
            yield batch
            del batch
    finally:
        filling.close()
        if bar is not None:
            bar.close()
