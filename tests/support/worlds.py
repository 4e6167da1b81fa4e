"""Worlds of several ranks, which are threads of this process."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
from members import Unsized

from pyecho import EchoError, EchoLoader

SECONDS = 60


class Missed(Exception):
    """A rank waits for a message of another one, which has left."""


class World:
    """Ranks that meet. They all send a message before any of them goes on.

    Attributes
    ----------
    messages
        What each rank has sent, in order.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.messages: list[list[list[int]]] = [[] for _ in range(size)]
        self._left: set[int] = set()
        self._changed = threading.Condition()

    def exchange(self, rank: int, values: list[int]) -> list[list[int]]:
        """Return the values of all ranks."""

        def missing() -> set[int]:
            return {other for other, sent in enumerate(self.messages) if len(sent) < number}

        with self._changed:
            self.messages[rank].append(values)
            number = len(self.messages[rank])
            self._changed.notify_all()
            self._changed.wait_for(lambda: not missing() or missing() & self._left, SECONDS)
            if missing():
                raise Missed(f"rank {rank} waits in message {number} for {missing()}")
            return [sent[number - 1] for sent in self.messages]

    def leave(self, rank: int) -> None:
        """Send no more."""
        with self._changed:
            self._left.add(rank)
            self._changed.notify_all()


class Member:
    """A rank of a world: a group of a loader."""

    def __init__(self, world: World, rank: int) -> None:
        self.world, self.rank, self.size = world, rank, world.size

    def gather(self, values: list[int]) -> list[list[int]]:
        return self.world.exchange(self.rank, list(values))


class Told(Unsized):
    """A source that tells a length, the right one or not."""

    def __init__(self, items: Any, length: int | None = None) -> None:
        super().__init__(items)
        self.length = len(items) if length is None else length

    def __len__(self) -> int:
        return self.length


def numbers_of(rank: int, count: int) -> list[np.int64]:
    """Return items that tell their rank and place."""
    return [np.int64(1000 * rank + place) for place in range(count)]


def loader_of(group: Any, source: Any, factor: Any, **options: Any) -> EchoLoader:
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
        finally:
            world.leave(rank)

    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * SECONDS)
    assert not any(thread.is_alive() for thread in threads), "a rank hangs"
    for error, text in sorted(errors, key=lambda each: isinstance(each[0], Missed)):
        raise AssertionError(text) from error
    return results, world


def errors_of(size: int, rank_does: Callable[[Member], Any]) -> list[str]:
    """Return the message of the `EchoError` that ends each rank; all of them must have one."""

    def fails(member: Member) -> str:
        try:
            rank_does(member)
        except EchoError as error:
            return str(error)
        raise AssertionError(f"rank {member.rank} goes on")

    return run_world(size, fails)[0]


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
