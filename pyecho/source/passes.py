"""The passes over a source that one beginning reads, and the first item of the first one."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

from pyecho.config import Config
from pyecho.items.rows import rows_of
from pyecho.run.context import CallerContext
from pyecho.run.progress import filling
from pyecho.run.ranks import Agreement, check_pass
from pyecho.run.threads import tidying
from pyecho.run.trace import span
from pyecho.source.native import NativePass
from pyecho.source.source import Source
from pyecho.state.resume import NOTHING, Resumption


def passes_over(
    source: Source,
    config: Config,
    epoch: int,
    resumed: Resumption | None = None,  # go on there
) -> Iterator[Iterator[Any]]:
    """Yield an iterator for each pass that flows into the one before it, from number `epoch` on."""
    leaving, ident = tidying, threading.get_ident  # modules may be empty by then
    if source.one_shot:
        numbers: Iterator[int] = iter([epoch])
    elif config.steps_per_epoch is not None:
        numbers = itertools.count(epoch)
    else:
        numbers = iter(range(epoch, max(epoch + 1, config.epochs or 0)))
    length = None
    if resumed is not None:
        resumed.check_length(source)
        length = resumed.flow.items
    for number in numbers if resumed is None else resumed.numbers(numbers):
        source.tell_epoch(number)
        if not config.alone and (config.epochs or config.steps_per_epoch):
            told = source.items()
            length = told if length is None else length
            check_pass(config, length, told)
        items = source.read() if resumed is None else resumed.read(source, number)
        if items is None:
            continue
        if config.progress and number == epoch and not source.native:
            capacity = config.capacity_for(source.items())
            items = filling(items, capacity, rows_of if source.batched else None)
        resumed = None
        try:
            yield items
        finally:
            leaving.add(ident())
            del items
            leaving.discard(ident())


def _beginning_with(items: Iterator[Any], passes: Iterator[Any]) -> Iterator[Any]:
    # Not itertools.chain(): that would drop `passes` first, but `passes_over` is to drop the items.
    yield items
    del items
    yield from passes


class Opening:
    """The first item of some passes, which is read once, however often it is asked for."""

    def __init__(
        self,
        passes: Iterator[Iterator[Any]],
        source: Source,  # that they read
        resumed: Resumption | None = None,
        *,
        least: int = 1,  # examples to read
    ) -> None:
        self.resumed = resumed
        self.agreement: Agreement | None = None
        """Agreement of the ranks, once there is one."""
        self.is_agreed = False
        self.passes = passes
        """All passes, but for the first item once it has been read."""
        self.first: Any = NOTHING
        """The first item; `NOTHING` if there is none, or if it has not been read."""
        self.more: list[Any] = []
        """Items behind it that were read as well, because a rank has several streams."""
        self.count: int | None = None
        """Examples of the pass, if they are less than the least to read."""
        self.items: int | None = None
        """Items of the pass, as the source tells once it knows the epoch."""
        self.error: BaseException | None = None
        self.seconds = 0.0
        self._is_read = False
        self._least = least
        self._source = source

    def read(self, context: CallerContext | None = None) -> None:
        """Read it, in this context. If the source raises, that is `error`."""
        if self._is_read:
            return
        began = time.perf_counter()
        try:
            self._is_read = True
            with span("source"):
                self.first, items = self._peek() if context is None else context.run(self._peek)
            self.passes = _beginning_with(items, self.passes)
        except BaseException as error:
            self.error = error
        self.seconds = time.perf_counter() - began

    def _peek(self) -> tuple[Any, Iterator[Any]]:
        items = next(self.passes, iter(()))
        self.items = self._source.items()
        if isinstance(items, NativePass):
            return NOTHING, items
        first = item = next(items, NOTHING)
        count = self._examples_of(first)
        while item is not NOTHING and count < self._least:
            item = next(items, NOTHING)
            if item is not NOTHING:
                self.more.append(item)
                count += self._examples_of(item)
        self.count = count if count < self._least else None
        return first, items

    def _examples_of(self, item: Any) -> int:
        if item is NOTHING:
            return 0
        return rows_of(item) if self._source.batched else 1
