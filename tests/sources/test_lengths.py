"""Lengths: how many examples the batches of a loader have, and how many the first one."""

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils import data

import pyecho
import pyecho.torch
from pyecho.config import Config
from pyecho.source import source_of
from pyecho.source.sniff import examples_of

ROWS = data.TensorDataset(torch.arange(10))


def as_of(module: str, kind: type) -> type:
    """Say that a class comes from another package, as its methods do then."""
    kind.__module__ = module
    for each in vars(kind).values():
        if callable(each):
            each.__module__ = module
    return kind


class Infinite:
    """As timm's `_RepeatSampler`."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from self.sampler


Infinite.__name__ = "_RepeatSampler"


class MultiEpochs(data.DataLoader):  # type: ignore[type-arg]
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._DataLoader__initialized = False
        self.batch_sampler = Infinite(self.batch_sampler)
        self._DataLoader__initialized = True

    def __len__(self) -> int:
        return len(self.batch_sampler.sampler)

    def __iter__(self) -> Iterator[Any]:
        batches = super().__iter__()
        for _ in range(len(self)):
            yield next(batches)


class Prefetch:
    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        yield from self.loader


class Threaded(data.DataLoader):  # type: ignore[type-arg]
    """As MONAI's `ThreadDataLoader`."""

    repeats = 2

    def __iter__(self) -> Iterator[Any]:
        for batch in super().__iter__():
            yield batch
            yield batch


class FastAI:
    def __init__(self, n: int | None, bs: int | None, drop_last: bool = False) -> None:
        self.n, self.bs, self.drop_last = n, bs, drop_last

    def __len__(self) -> int:
        assert self.n is not None
        assert self.bs is not None
        return self.n // self.bs + (not self.drop_last and self.n % self.bs > 0)

    def __iter__(self) -> Iterator[Any]:
        kept = torch.arange(self.n or 0)[: len(self) * (self.bs or 1)]
        yield from kept.split(self.bs or 1)


as_of("timm.data.loader", MultiEpochs)
as_of("timm.data.loader", Prefetch)
as_of("monai.data.thread_buffer", Threaded)
as_of("fastai.data.load", FastAI)


def loader(size: int = 4, **options: Any) -> Any:
    return data.DataLoader(ROWS, batch_size=size, **options)


@pytest.mark.parametrize(
    "given",
    [
        loader(),
        loader(drop_last=True),
        loader(20),
        loader(5, sampler=[1, 2, 3]),
        data.DataLoader(ROWS, batch_sampler=[[1, 2], [3]]),
        MultiEpochs(ROWS, batch_size=4, drop_last=True),
        Prefetch(loader(3)),
        Prefetch(MultiEpochs(ROWS, batch_size=3)),
        Threaded(ROWS, batch_size=4),
        FastAI(10, 4),
        FastAI(10, 4, drop_last=True),
        FastAI(3, 4),
    ],
)
def test_loader_tells_its_examples_and_those_of_its_first_batch(given: Any) -> None:
    rows = [len(batch[0] if isinstance(batch, list) else batch) for batch in given]
    assert examples_of(given) == (sum(rows), rows[0])
    assert source_of(given, Config(batch_size=2, unbatch=True)).length() == sum(rows)
    assert source_of(given, Config(batch_size=2)).length() == len(given)


class Skipping(data.DataLoader):  # type: ignore[type-arg]
    def __iter__(self) -> Iterator[Any]:
        return iter([])


class Stream(data.IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Iterator[Any]:
        return iter(range(4))


class Partial(FastAI):
    """As `PartialDL`, which has fewer batches than ``n`` tells."""

    def __len__(self) -> int:
        return 1


as_of("fastai.callback.data", Partial)


@pytest.mark.parametrize(
    "given",
    [
        [1, 2],
        data.DataLoader(ROWS, batch_size=None),
        data.DataLoader(Stream(), batch_size=2),
        Skipping(ROWS, batch_size=2),
        FastAI(None, 4),
        FastAI(10, None),
        Partial(10, 4),
    ],
)
def test_lengths_that_are_not_certain_are_unknown(given: Any) -> None:
    assert examples_of(given) == (None, None)


def test_loader_with_fewer_examples_than_a_batch_drops_them_all_with_drop_last() -> None:
    assert examples_of(loader(20, drop_last=True)) == (0, 0)


def changed(counts: dict[int, int]) -> Any:
    """Return a collate_fn: batches of these rows have other numbers of rows."""

    def collate(examples: list[Any]) -> Any:
        rows = torch.stack([row for (row,) in examples])
        return rows.repeat(9)[: counts.get(len(rows), len(rows))]

    return collate


@pytest.mark.parametrize("rows", [2, 12])
def test_len_is_unknown_once_the_first_batch_has_other_rows_than_told(rows: int) -> None:
    source = loader(collate_fn=changed({4: rows}))
    echo = pyecho.torch.EchoLoader(source, 3, batch_size=5, unbatch=True, seed=1)
    assert len(echo) == 6
    with pytest.warns(RuntimeWarning, match=f"batch of {rows} rows and tells 4.*steps_per_epoch="):
        batches = [each.tolist() for each in echo]
    assert sum(map(len, batches)) == 3 * (2 * rows + 2)
    with pytest.raises(TypeError, match=f"batch of {rows} rows and tells 4.*steps_per_epoch="):
        len(echo)
    plain = [changed({4: rows})([(i,) for i in each]) for each in torch.arange(10).split(4)]
    known = pyecho.torch.EchoLoader(iter(plain), 3, batch_size=5, unbatch=True, seed=1)
    assert [each.tolist() for each in known] == batches
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sum(1 for _ in echo) == len(batches)  # told once


def test_shuffle_buffer_is_not_cut_to_a_wrong_length() -> None:
    source = loader(collate_fn=changed({4: 36}))
    echo = pyecho.torch.EchoLoader(
        source, 1, batch_size=1, unbatch=True, shuffle_buffer=60, with_info=True
    )
    with pytest.warns(RuntimeWarning, match="batch of 36 rows"):
        numbers = [int(info.source_index[0]) for _, info in echo]
    assert max(numbers[:30]) > 40


def test_state_goes_on_without_a_length_that_is_wrong() -> None:
    def make() -> Any:
        source = loader(collate_fn=changed({4: 7}))
        return pyecho.torch.EchoLoader(source, 2.5, batch_size=3, unbatch=True, shuffle_buffer=15)

    with pytest.warns(RuntimeWarning, match="batch of 7 rows"):
        whole = [each.tolist() for each in make()]
    for payload in (True, False):
        for stop in range(1, len(whole)):
            first, second = make(), make()
            batches = iter(first)
            with pytest.warns(RuntimeWarning, match="batch of 7 rows"):
                next(batches)
            for _ in range(1, stop):
                next(batches)
            second.load_state_dict(first.state_dict(payload=payload))
            with pytest.warns(RuntimeWarning, match="when the state was taken"):
                assert [each.tolist() for each in second] == whole[stop:]
            with pytest.raises(TypeError, match="when the state was taken"):
                len(second)


@pytest.mark.parametrize("rows", [2, 7, 40])
@pytest.mark.parametrize("options", [{"pad_last": True}, {"shards": 2}], ids=str)
def test_full_batches_of_a_length_that_is_wrong_are_refused(rows: int, options: Any) -> None:
    source = loader(10, collate_fn=changed({10: rows}))
    echo = pyecho.torch.EchoLoader(source, 2, batch_size=4, unbatch=True, **options)
    shown = "more than 10" if rows > 10 else rows
    with pytest.raises(pyecho.ConfigError, match=f"batch of {shown} rows and tells 10.*steps_per"):
        next(iter(echo))
    steps = pyecho.torch.EchoLoader(
        source, 2, batch_size=4, unbatch=True, pad_last=True, steps_per_epoch=5
    )
    assert sum(1 for _ in steps) == len(steps) == 5


def test_end_of_a_pass_warns_of_other_rows_in_later_batches() -> None:
    source = loader(collate_fn=changed({2: 1}))
    echo = pyecho.torch.EchoLoader(source, 2, batch_size=5, unbatch=True)
    with pytest.warns(RuntimeWarning, match="told 10 items and yielded 9, so len\\(loader\\) was"):
        assert sum(map(len, echo)) == 18


@pytest.mark.filterwarnings("ignore:the source .* has more than the")
@pytest.mark.parametrize("payload", [True, False])
def test_rows_beyond_the_length_are_left_out_after_a_resume_too(payload: bool) -> None:
    def collate(numbers: list[int]) -> Any:  # makes later batches longer than the first tells
        rows = torch.tensor(numbers)
        return rows if rows[0] < 4 else torch.cat([rows, rows[:2] + 100])

    def make() -> Any:
        source = data.DataLoader(range(12), batch_size=4, collate_fn=collate)  # type: ignore[arg-type]
        options = {"batch_size": 4, "unbatch": True, "pad_last": True, "shuffle_buffer": 1}
        return pyecho.torch.EchoLoader(source, 1, **options)

    whole = [batch.tolist() for batch in make()]
    for taken in range(len(whole) + 1):
        loader = make()
        batches = iter(loader)
        for _ in range(taken):
            next(batches)
        resumed = make()
        resumed.load_state_dict(loader.state_dict(payload=payload))
        assert [batch.tolist() for batch in resumed] == whole[taken:]


class Long:
    """A source of very many items."""

    def __init__(self, items: int) -> None:
        self.items = items

    def __len__(self) -> int:
        return self.items

    def __getitem__(self, index: int) -> int:
        return index


@pytest.mark.parametrize("options", [{}, {"batch_size": 4}, {"batch_size": 4, "shuffle": True}])
@pytest.mark.parametrize(
    ("items", "factor"), [(2**62, 1.5), (2**62, 7), (2**63 - 1, 1), (2**63, 1), (2**50, 2**30)]
)
def test_length_whose_uses_cannot_be_counted_is_a_config_error(
    items: int, factor: float, options: dict[str, Any]
) -> None:
    with pytest.raises(pyecho.ConfigError, match=r"items that are counted|uses that are counted"):
        next(iter(pyecho.EchoLoader(Long(items), factor, **options)))


@pytest.mark.parametrize(("items", "factor"), [(2**60, 3), (2**30, 2**30)])
def test_length_of_very_many_items_or_uses_is_exact(items: int, factor: int) -> None:
    loader = pyecho.EchoLoader(Long(items), factor, batch_size=4, max_bytes=2**20)
    assert len(loader) == items * factor // 4
    assert len(next(iter(loader))) == 4


@pytest.mark.parametrize(
    "spec",
    [
        pyecho.Field((2**62,), "uint8"),
        pyecho.Field((2**31, 2**31), "int64"),
        {name: pyecho.Field((2**62,), "uint8") for name in "abcd"},
        {name: pyecho.Field((2**59,), "uint8") for name in "abcdefgh"},
        pyecho.Field((None,), "uint8", max_bytes=2**48),
    ],
    ids=range(5),
)
def test_sizes_beyond_the_address_space_are_a_config_error(spec: Any) -> None:
    with pytest.raises(pyecho.ConfigError, match="address space"):
        pyecho.EchoBuffer(spec, batch_size=2**20, shuffle_buffer=2**20, max_bytes=2**62)
