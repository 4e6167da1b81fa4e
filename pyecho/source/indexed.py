"""Sources with items by index that are read in an order of their own: shuffled, or a sampler's."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from pyecho import _core
from pyecho._core import ConfigError, EchoError
from pyecho.config import Config
from pyecho.source.arrays import Arrays, has_columns
from pyecho.source.base import Pass, Source
from pyecho.source.iterable import Iterable, batch_of
from pyecho.source.reader import Chained, Indexed, Mapped, item_at
from pyecho.source.sampler_reader import BLOCK, Begun, SamplerReader
from pyecho.source.sniff import has_special, length_of, tell_epoch
from pyecho.warn import warn


class MapStyleSource(Source):
    """Reads items by index, as `shuffle`, `sampler` and `num_workers` ask.

    If shuffled, rank r of R has the places r, r + R, ... of the whole order, a permutation that
    (seed, epoch) selects; it is computed place by place, so nothing of it is held. A sampler must
    yield the same indices again for an epoch. Random functions of torch draw from a generator that
    (seed, epoch) seeds while it is read, so that samplers of torch without a generator of their own
    keep to that.
    """

    def __init__(self, inner: Source, config: Config) -> None:
        super().__init__(inner.object)
        sampler, is_array = config.sampler, isinstance(inner, Arrays)
        if sampler is not None and (
            isinstance(sampler, Iterator) or not hasattr(type(sampler), "__iter__")
        ):
            raise ConfigError(
                "sampler must be an iterable of indices that can be read again, got "
                f"{type(sampler).__name__}; pass a list, a sampler of torch, or an object with "
                "__iter__ and __len__"
            )
        self._inner = inner
        self._config = config
        self._get = partial(item_at, getter_of(inner, config))
        self._count = inner.rows if isinstance(inner, Arrays) else partial(len, inner.object)
        # Rows of arrays are gathered in chunks: one by one they cost a microsecond each.
        gathered = is_array and config.shuffle and not config.num_workers
        self._chunk_rows: int | None = getattr(inner, "gathered_rows", None) if gathered else None
        self.in_memory = inner.in_memory and not config.num_workers
        self.exact = self._by_index = not config.splits_batches  # else a row may be in any batch
        self.batched = config.splits_batches or self._chunk_rows is not None

    def set_epoch(self, epoch: int) -> None:
        """Tell the source, its dataset and the sampler."""
        if self._config.sampler is not None:
            tell_epoch(self._config.sampler, epoch)
        super().set_epoch(epoch)

    def _open(self, at: int) -> Pass:
        if self._chunk_rows is None:
            return Pass(Mapped(self._indices(at), self._get))
        gather = self._inner.gather  # type: ignore[attr-defined]
        return Pass(Mapped(self._shuffled(at, self._chunk_rows), gather))

    def _length(self) -> int | None:
        config = self._config
        if config.splits_batches:
            is_whole = config.sampler is None and (config.ranks == 1 or not config.shuffle)
            return self._inner.length() if is_whole else None
        return len(self._places()) if config.sampler is None else length_of(config.sampler)

    def _places(self) -> range:
        """Return the places of this rank in the whole order."""
        rank, ranks = (self._config.rank, self._config.ranks) if self._config.shuffle else (0, 1)
        return range(rank, self._count(), ranks)

    def _indices(self, at: int) -> Iterator[Any]:
        """Return the indices of the pass from place `at` on, by a reader."""
        sampler = self._config.sampler
        if sampler is not None:
            drawn = SamplerReader(partial(self._begin_sampler, self.epoch))
            return Chained(_SamplerBlocks(drawn, sampler, at), iter)
        if self._config.shuffle:
            return Chained(self._shuffled(at, BLOCK), np.ndarray.tolist)
        places = self._places()
        return Indexed(places.__getitem__, at, len(places))

    def _shuffled(self, at: int, step: int) -> Iterator[Any]:
        """Return the indices of a shuffled pass from place `at` on, in arrays, by a reader."""
        config, count, places, epoch = self._config, self._count(), self._places(), self.epoch

        def block(begin: int) -> Any:
            part = places[begin : begin - begin % step + step]
            last = min(part.stop, count)
            return _core.permuted(count, config.seed, epoch, part.start, last, config.ranks)

        return Indexed(block, at, len(places), step=step)

    def _begin_sampler(self, epoch: int) -> Begun:
        iterate = partial(iter, self._config.sampler)
        if sys.modules.get("torch") is None:
            return Begun(iterate)
        from pyecho.torch.random import SeededTorch

        bits = _core.permuted(2**62, self._config.seed, epoch, 0, 1, 1)
        return Begun(iterate, SeededTorch(lambda: int(bits[0])).call)


def getter_of(inner: Source, config: Config) -> Callable[[Any], Any]:
    """Return what makes an item of its index. Raises `ConfigError` if there are none by index."""
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


class _SamplerBlocks(Iterator[list[Any]]):
    """Yields the indices of a sampler in blocks, from a place on, and no more than it tells."""

    def __init__(self, drawn: SamplerReader, sampler: Any, place: int) -> None:
        self._drawn = drawn
        self._sampler = sampler
        self._place = place

    def __next__(self) -> list[Any]:
        """Return the next block."""
        kind, told = type(self._sampler).__name__, length_of(self._sampler)
        most = BLOCK if told is None else max(0, min(BLOCK, told - self._place))
        block = self._drawn(self._place, max(1, most))
        end = self._place + min(most, len(block))
        if told is not None and len(block) < most:
            raise EchoError(
                f"the sampler ({kind}) has ended after {end} indices, and its length was {told}; "
                "have len() tell how many there are"
            )
        if len(block) > most:
            warn(
                f"the sampler ({kind}) has more than the {told} indices it tells: the rest is left "
                "out; have len() tell how many there are",
                RuntimeWarning,
            )
        if end == self._place:
            raise StopIteration
        self._place = end
        return block
