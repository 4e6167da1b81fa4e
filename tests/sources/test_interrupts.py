"""Readers lose no item and double none, wherever Ctrl-C hits them."""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from interrupt_points import nothing_is_lost
from members import Dataset, Sliced, plain

from pyecho.config import Config
from pyecho.items.rows import rows_of
from pyecho.run.progress import Filling, Shown
from pyecho.source import source_of
from pyecho.source.limited import Limited
from pyecho.stats import EchoStats

pytestmark = pytest.mark.slow


def check(make: Callable[[], Iterator[Any]], plain: Callable[[Any], Any] = plain) -> int:
    """Interrupt the iterator at every point, one at a time; return how many there are."""
    return nothing_is_lost(make, plain(list(make())), plain=plain)


def read(given: Any, **options: Any) -> Callable[[], Iterator[Any]]:
    return lambda: source_of(given, Config(**options)).open(0).items


X, Y = np.arange(12.0).reshape(4, 3), np.arange(4)


class Subclass(np.ndarray):
    def __getitem__(self, index: Any) -> Any:
        return np.asarray(self)[index]


@pytest.mark.parametrize(
    "make",
    [
        read(Dataset(range(5))),
        read({"x": Sliced(X, rows=3), "y": [*"abcd"]}),
        read((Dataset(range(4)), X), batch_size=2),
        read({1: X, 2: Y}),
        read(X.view(Subclass)),
        read((torch.nn.Parameter(torch.tensor(X), requires_grad=False), Y)),
    ],
    ids=["dataset", "columns", "pairs", "keys", "subclass", "parameter"],
)
def test_source_read_by_index_or_chunk_loses_no_item(make: Callable[[], Iterator[Any]]) -> None:
    assert check(make) > 10


class Blocks:
    """As a dataset of Ray Data, but that its iterator is C's own."""

    def __init__(self, tables: list[Any]) -> None:
        self._tables = tables

    def iter_batches(self, *, batch_size: None, batch_format: str) -> Iterator[Any]:
        return iter(self._tables)


@pytest.mark.parametrize("collated", [False, True])
def test_rows_of_ray_data_lose_no_item(collated: bool) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyecho.source.ray import RayData

    blocks = Blocks([pyarrow.table({"x": [1, 2]}), pyarrow.table({"x": [3]})])
    assert check(lambda: RayData(blocks, by_row=True, batched=not collated).open(0).items) > 10


@pytest.mark.parametrize("length", [3, 4])
def test_limit_loses_no_item(length: int) -> None:
    def limited(given: Any, **options: Any) -> Iterator[Any]:
        source = source_of(given, Config(batch_size=2, **options))
        return Limited(source.open(0).items, length, source)

    assert check(lambda: limited([*range(4)])) > 10
    batches = [np.arange(3), np.arange(0), np.arange(3, 6)]
    assert check(lambda: limited(batches, unbatch=True)) > 10


def test_progress_bars_lose_no_item(capsys: pytest.CaptureFixture[str]) -> None:
    tqdm = pytest.importorskip("tqdm")

    def stats() -> EchoStats:
        return EchoStats()

    assert check(lambda: Shown(iter(range(4)), 4, stats)) > 10
    assert check(lambda: Filling(iter(range(4)), 3, None)) > 10
    assert check(lambda: Filling(iter([np.arange(3)] * 3), 5, rows_of)) > 10
    assert not tqdm.tqdm._instances
    capsys.readouterr()


@pytest.mark.parametrize(
    "given", [[3, 4], range(4), X, torch.tensor(X), (X, torch.tensor(Y), [*"abcd"]), {"x": X}]
)
def test_items_in_memory_are_read_without_python_code(given: Any) -> None:
    iterator = source_of(given, Config(batch_size=None)).open(0).items
    calls: list[str] = []
    sys.setprofile(lambda frame, event, _: calls.append(event))
    try:
        items = [*iterator]
    finally:
        sys.setprofile(None)
    assert len(items) in (2, 4)
    assert "call" not in calls
