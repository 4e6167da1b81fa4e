"""Worlds of several ranks, which are threads of this process."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from pyecho import EchoLoader

SECONDS = 60


class World:
    """Ranks that meet; counts their collectives and the numbers that they pass."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.barrier = threading.Barrier(size, timeout=SECONDS)
        self.values: list[Any] = [None] * size
        self.calls = self.numbers = 0

    def exchange(self, rank: int, value: Any) -> list[Any]:
        self.values[rank] = value
        self.barrier.wait()
        found = list(self.values)
        if rank == 0:
            self.calls += 1
        self.barrier.wait()
        return found


class Member:
    """A rank of a world, as `pyecho.run.ranks.Group` says."""

    def __init__(self, world: World, rank: int) -> None:
        self.world, self.rank, self.size = world, rank, world.size

    def gather(self, values: list[int]) -> list[list[int]]:
        if self.rank == 0:
            self.world.numbers += len(values)
        return self.world.exchange(self.rank, list(values))

    def share(self, value: Any, rank: int) -> Any:
        return self.world.exchange(self.rank, value)[rank]


class Unsized:
    """A source that can be read again and does not tell its length."""

    def __init__(self, items: Any) -> None:
        self.items = items

    def __iter__(self) -> Any:
        return iter(self.items)


def loader_of(group: Any, source: Any, factor: float, **options: Any) -> EchoLoader:
    """Return a loader in a group."""

    class Loader(EchoLoader):
        _group = group

    return Loader(source, factor, **options)


def run_world(size: int, rank_does: Callable[[Member], Any]) -> tuple[list[Any], World]:
    """Call a function in each rank; return what they return."""
    world = World(size)
    results: list[Any] = [None] * size
    errors: list[tuple[BaseException, str]] = []

    def work(rank: int) -> None:
        try:
            results[rank] = rank_does(Member(world, rank))
        except BaseException as error:
            errors.append((error, traceback.format_exc()))
            world.barrier.abort()

    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * SECONDS)
    assert not any(thread.is_alive() for thread in threads), "a rank hangs"
    for error, text in errors:
        if not isinstance(error, threading.BrokenBarrierError):
            raise AssertionError(text) from error
    assert not errors
    return results, world


def global_batches(per_rank: list[list[Any]]) -> list[Any]:
    """Put the batches of all ranks together: row r, r + R, ... is of rank r. None: the end."""
    assert len({len(batches) for batches in per_rank}) == 1, list(map(len, per_rank))
    whole = []
    for parts in zip(*per_rank, strict=True):
        if parts[0] is None:
            assert all(part is None for part in parts)
            whole.append(None)
            continue
        rows = np.empty(sum(map(len, parts)), np.int64)
        for rank, part in enumerate(parts):
            rows[rank :: len(parts)] = part
        whole.append(rows.tolist())
    return whole
