"""Sources with items by index that are read in an order of their own."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from pyecho._core import ConfigError
from pyecho.config import Config
from pyecho.source.arrays import Arrays, has_columns
from pyecho.source.iterable import Iterable, batch_of
from pyecho.source.order import Order, Sampled
from pyecho.source.reader import Indexed, Mapped, Source, item_at
from pyecho.source.sniff import has_special, length_of


def picked(inner: Source, config: Config) -> Source:
    """Return the source that reads `inner` by index, as `shuffle`, `sampler`, `num_workers` ask.

    Raises `ConfigError` if it has no items by index.
    """
    get = getter_of(inner, config)
    items = inner.rows if isinstance(inner, Arrays) else partial(len, inner.object)
    order: Order | Sampled
    if config.sampler is not None:
        order = Sampled(config.sampler, config.seed)
    elif config.shuffle:
        rank, ranks = config.rank, config.ranks
        order = Order(items, seed=config.seed, rank=rank, ranks=ranks)
    else:
        order = Order(items)
    if config.num_workers:
        from pyecho.source.worked import Worked

        return Worked(inner, get, order, config)
    return Picked(inner, get, order, unbatch=config.splits_batches)


def getter_of(inner: Source, config: Config) -> Callable[[Any], Any]:
    """Return what makes an item of its index."""
    if isinstance(inner, Arrays):
        return inner.item
    given = inner.object
    data = sys.modules.get("torch.utils.data")
    streams = data is not None and isinstance(given, data.IterableDataset)
    known = has_special(given, "__getitem__") and length_of(given) is not None
    if not known or streams or not isinstance(inner, Iterable) or has_columns(given):
        hint = ""
        if hasattr(given, "batch_sampler"):
            hint = ", such as the dataset of this DataLoader"
        raise ConfigError(
            f"{config.by_index} needs a source with items by index (__getitem__ and __len__), got "
            f"{type(given).__name__}; pass one{hint}, or shuffle and read in the source itself"
        )
    return partial(_batch_at if config.unbatch else operator.getitem, given)


def _batch_at(given: Any, index: Any) -> Any:
    return batch_of(given[index])


class Picked(Source):
    """Reads items by index in the order of an `Order` or of a sampler (`Sampled`)."""

    exact = True

    def __init__(
        self,
        inner: Source,
        get: Callable[[Any], Any],
        order: Order | Sampled,
        *,
        unbatch: bool,
    ) -> None:
        super().__init__(inner.object)
        self.in_memory = inner.in_memory
        self.indexed = not unbatch  # a row may be in any batch
        self._inner = inner
        self._get = get
        self._order = order
        # Rows of arrays are gathered in chunks: one by one they cost a microsecond each.
        gathered = isinstance(inner, Arrays) and isinstance(order, Order)
        self._chunk_rows: int | None = getattr(inner, "gathered_rows", None) if gathered else None
        self.batched = unbatch or self._chunk_rows is not None
        self.exact = not unbatch

    def read(self, start: int = 0) -> Iterator[Any]:
        """Begin one pass."""
        if self._chunk_rows is not None:
            step, length = self._chunk_rows, self._order.length()
            return Indexed(partial(self._chunk, step), start, length or 0, step=step)
        return Mapped(self._order.indices(start), partial(item_at, self._get))

    def _chunk(self, step: int, place: int) -> Any:
        assert isinstance(self._order, Order)
        assert isinstance(self._inner, Arrays)
        return self._inner.gather(self._order.block(place, place - place % step + step))

    def length(self) -> int | None:
        """Return the number of indices; with `unbatch` the rows, if the source tells them."""
        if self.exact:
            return self._order.length()
        return self._inner.length() if self._order.is_whole else None

    def set_epoch(self, epoch: int) -> None:
        """Tell the source, its dataset and the sampler."""
        super().set_epoch(epoch)
        self._order.set_epoch(epoch)
