"""A pass whose items workers make: tasks and results are in the order of the indices."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from pyecho import _core
from pyecho._core import Closed
from pyecho.workers.pool import Pool, Task
from pyecho.workers.process import Slots, mismatch

SLICE_SECONDS = 0.05  # a wait for workers checks this often whether the stage has paused
FULL_SECONDS = 1e-3  # and this often for room, while a worker is free and all slots are in use


class WorkerPass(Iterator[Any]):
    """Yields items in the order of `indices`, a reader; the native stage has it fill slots instead.

    `writing`: spec and `to_array` of the slots, once they are known; empty where items must come
    back. The first item does so, and is made by itself: often no other is wanted.
    """

    def __init__(
        self,
        pool: Pool,
        indices: Iterator[Any],
        epoch: int,
        place: int,  # of the first index in the epoch
        writing: list[Any],
    ) -> None:
        self._pool = pool
        self._indices = indices
        self._epoch = epoch
        self._place = place  # of the next task
        self._writing = writing
        self._next: list[Any] = []  # indices that follow, as far as they are known
        self._failure: Exception | None = None  # of the indices, after all tasks before it
        self._tasks: deque[Task] = deque()  # that are handed out, in order
        self._has_begun = False
        self._had_items = False  # put into slots

    def _has_index(self, items: int = 1) -> bool:
        while len(self._next) < items and self._failure is None:
            before = len(self._next)
            try:
                self._next.extend(islice(self._indices, items - before))
            except Exception as error:
                self._failure = error
            if len(self._next) == before:
                break
        if self._next:
            self._pool.has_short_indices = isinstance(self._next[0], int | np.integer)
        return bool(self._next)

    def _give(self, items: int, slots: list[int] | None = None, ticket: int = 0) -> None:
        task = Task(self._epoch, self._place, self._next[:items], slots, ticket)
        self._tasks.append(task)
        self._place += len(task.indices)
        del self._next[:items]
        self._pool.give(task)

    def _check_indices(self) -> None:
        if self._failure is not None:
            raise self._failure

    # ------------------------------------------------------------ items

    def __next__(self) -> Any:
        """Return the next item, which has come back."""
        pool, tasks = self._pool, self._tasks
        while True:
            answer = tasks[0].answer if tasks else None
            if answer is not None and answer.error is not None and not answer.made:
                raise answer.error
            if answer is not None:
                self._has_begun = True
                item = answer.made.pop(0)
                if not answer.made and answer.error is None:
                    tasks.popleft()
                return item
            items = pool.items if self._has_begun else 1
            while (not tasks or self._has_begun) and pool.has_room and self._has_index(items):
                self._give(items)
            if not tasks and not self._has_index():
                self._check_indices()
                raise StopIteration
            if not tasks or tasks[0].answer is None:  # none: the workers still end another pass
                pool.wait(SLICE_SECONDS)

    # ------------------------------------------------------------ slots

    @property
    def __pyecho_fill__(self) -> Callable[[_core.ExampleStage], bool | None]:
        """Fill slots of a stage, up to the end of the pass; return whether there were items.

        Returns None if the stage has paused: nothing is handed out then, and the pass goes on with
        the next call.
        """
        if not self._writing:
            raise AttributeError("the items of this pass come back")
        return self._fill

    def _fill(self, stage: _core.ExampleStage) -> bool | None:
        descriptor, size_bytes, streamed = stage._shared_slots
        spec, to_array, most = self._writing
        number = os.fstat(descriptor).st_ino
        self._pool.slots = Slots(spec, to_array, descriptor, number, size_bytes, streamed)
        try:
            while self._step(stage, most):
                pass
            while self._tasks:
                self._take(stage, SLICE_SECONDS)
            if not self._has_index():
                self._check_indices()
        except BaseException:
            self._drop(stage)
            raise
        return None if self._has_index() else self._had_items

    def _step(self, stage: _core.ExampleStage, most: int) -> bool:
        """Hand out what can be, and take what is done. Return False at the end or in a pause."""
        is_full = False
        items = min(self._pool.items, most)
        while not is_full and self._pool.has_room and self._has_index(items):
            places = stage._reserve_slots(min(items, len(self._next)), wait=not self._tasks)
            if places is None:
                is_full = True
            else:
                self._give(len(places[0]), *places)
        if self._tasks:
            self._take(stage, FULL_SECONDS if is_full else SLICE_SECONDS)
        elif self._has_index() and not is_full:
            self._pool.wait(SLICE_SECONDS)  # the workers still end another pass
        else:
            return False
        return not stage._is_paused

    def _take(self, stage: _core.ExampleStage, seconds: float) -> None:
        """Commit what is done, in order: an error comes after all items before it."""
        tasks = self._tasks
        if tasks[0].answer is None:
            self._pool.wait(seconds)
        if self._pool.closed:
            raise Closed("this EchoLoader is closed; make a new one")
        while tasks and tasks[0].answer is not None:
            task, answer = tasks[0], tasks[0].answer
            assert task.slots is not None
            made = task.slots[: len(answer.made)]
            count, refusal = stage._commit_slots(made, task.ticket, answer.made)
            self._had_items = self._had_items or count > 0
            del task.slots[:count], answer.made[:]
            task.ticket += count
            if refusal:
                raise mismatch(task.indices[count], refusal)
            if answer.error is not None:
                raise answer.error
            tasks.popleft()

    def _drop(self, stage: _core.ExampleStage) -> None:
        """Give back all slots, once no worker writes to them any more."""
        while self._tasks:
            if self._tasks[0].answer is None and not self._pool.closed:
                self._pool.wait(SLICE_SECONDS)
                continue
            task = self._tasks.popleft()
            stage._abort_slots(task.slots or [], task.ticket)
