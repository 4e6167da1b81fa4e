"""Progress bars: the shuffle pool as it fills, then the epoch. Needs tqdm."""

from __future__ import annotations

import threading
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
    # With a lock of its own: Ctrl-C inside of tqdm may leave a lock taken, and threads wait for it.
    # And without the thread that tqdm would start for the class.
    return type("Bar", (tqdm,), {"_lock": threading.RLock(), "monitor_interval": 0})


class _UnderBar(Iterator[Any]):
    """Passes items on, under a bar that changes between them: Ctrl-C in it costs no item.

    The bar is closed after the last item, by an error, and with this object.
    """

    _bar: Any = None

    def __init__(self, items: Iterator[Any], *, keeps: bool) -> None:
        self._items = items
        self._keeps = keeps  # the last item, for `_show`
        self._passed: list[Any] = []  # that item, or None

    def __next__(self) -> Any:
        try:
            self._show(self._passed)
            self._passed = []
            for item in self._items:
                self._passed = [item if self._keeps else None]
                return item
        except Exception:
            self._close_bar()
            raise
        self._close_bar()
        raise StopIteration

    def close(self) -> None:
        """Close the bar and the items."""
        self._close_bar()
        close = getattr(self._items, "close", None)
        if close is not None:
            close()

    def __del__(self) -> None:
        self._close_bar()

    def _show(self, passed: list[Any]) -> None:
        """Show that another item is wanted. `passed`: the last one, if there was one."""
        raise NotImplementedError

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.close()


class Filling(_UnderBar):
    """The items of a source under a bar, until the pool is full. `rows_of`: counts their rows."""

    def __init__(
        self, items: Iterator[Any], capacity: int, rows_of: Callable[[Any], int] | None
    ) -> None:
        super().__init__(items, keeps=rows_of is not None)
        self._rows_of = rows_of
        self._bar = require_tqdm()(
            total=capacity, desc="filling", leave=False, disable=capacity < 2
        )

    def _show(self, passed: list[Any]) -> None:
        if not self._bar.disable:
            self._bar.update(1 if self._rows_of is None else sum(map(self._rows_of, passed)))
        if self._bar.n >= self._bar.total:
            self._keeps = False
            self._bar.close()


class Shown(_UnderBar):
    """The batches under a bar that also shows what `stats` returns."""

    def __init__(
        self, items: Iterator[Any], total: int | None, stats: Callable[[], EchoStats]
    ) -> None:
        super().__init__(items, keeps=False)
        self._total = total
        self._stats = stats

    def _show(self, passed: list[Any]) -> None:
        if not passed:
            return
        if self._bar is None:
            self._bar = require_tqdm()(total=self._total, desc="echoing", unit="batch")
        if self._bar.update():  # it has been drawn, which it is a few times a second
            self._bar.set_postfix_str(_summary(self._stats()), refresh=False)

    def _close_bar(self) -> None:
        if self._bar is not None and not self._bar.disable:
            self._bar.set_postfix_str(_summary(self._stats()))
        super()._close_bar()


def _summary(stats: EchoStats) -> str:
    """Return the fill of the pool, R, uses per fresh item, and the share of uses that are fresh."""
    shown = {
        "fill": f"{stats.occupancy:.0%}",
        "R": f"{stats.ratio:.1f}",
        "e": f"{stats.effective_factor:.2f}",
        "fresh": f"{stats.fresh_share:.0%}",
    }
    return ", ".join(f"{name}={value}" for name, value in shown.items() if "nan" not in value)
