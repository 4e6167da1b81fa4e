"""The workers of a loader and their tasks; a worker that died is replaced, its items made again."""

from __future__ import annotations

import os
import reprlib
import select
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyecho._core import Closed, WorkerError
from pyecho.workers.process import Part, Reply, Slots

TASK_SECONDS, MOST_ITEMS = 1e-3, 32
"""Items are handed out together, as many as take this long, but at most so many."""


@dataclass(eq=False)
class Task:
    """Some items to be made, one after the other."""

    epoch: int
    place: int  # of the first item in the epoch
    indices: list[Any]
    slots: list[int] | None = None  # where the items go; None: back to the loader
    ticket: int = 0  # of the first slot
    answer: Reply | None = None  # once it is there
    seconds: float = 0.0  # that an item took, without the way to the worker and back
    deaths: int = 0  # of workers that were making the item that follows
    _alone: bool = False  # make one item at a time: a worker died
    _made: list[Any] = field(default_factory=list)

    def part(self) -> Part:
        """Return the items that are to be made now."""
        begin = len(self._made)
        part = slice(begin, begin + 1 if self._alone else None)
        slots = None if self.slots is None else self.slots[part]
        return Part(self.epoch, self.place + begin, self.indices[part], slots)

    def take(self, reply: Reply) -> None:
        """Take what came of that."""
        self.seconds = reply.seconds / len(self.part().indices)
        self._made += reply.made
        self.deaths = 0
        if reply.error is not None or len(self._made) == len(self.indices):
            self.answer = Reply(self._made, reply.error)

    def fail(self, error: BaseException | None) -> None:
        """Take an error that one of the items has, it is not known which: make them one by one."""
        if len(self.part().indices) == 1:
            self.take(Reply([], error))
        self._alone = True

    def died(self, how: str, *, began: bool) -> None:
        """Have another worker make what is left, once; if that one dies as well, fail."""
        indices = self.part().indices
        self._alone = True
        self.deaths += len(indices) == 1 or not began  # else it is unknown which item is to blame
        if self.deaths < 2:
            return
        text = (
            f"item {reprlib.repr(indices[0])} of the source cannot be made: two workers died of "
            f"it, the last with {how}; look for a lack of memory or a crash of a library in what "
            "they wrote"
        )
        if not began:
            text = (
                "worker processes cannot begin: two workers died before the first item, the last "
                f"with {how}; look at what they wrote, at worker_init_fn, and with "
                '"spawn" or "forkserver" for a missing if __name__ == "__main__":'
            )
        self.take(Reply([], WorkerError(text)))


class Worker(Protocol):
    """A process or a thread that does one task after the other."""

    tasks: deque[Task]
    """Tasks it has, in their order."""

    began: bool
    """False until it has called `worker_init_fn`."""

    def fileno(self) -> int:
        """Return the descriptor that can be read once there is a reply, or the worker died."""

    def give(self, task: Task, slots: Slots | None) -> None:
        """Have it do a task as well. `slots`: of the stage that tasks go to."""

    def collect(self) -> Task | None:
        """Take a message, and return the task that it answers, if any.

        Raises `EOFError` or `OSError` if the worker has died.
        """

    def end(self) -> None:
        """Have it end after its tasks. From any thread."""

    def join(self, timeout: float) -> str:
        """Wait for its end; return how it ended."""


class Pool:
    """Gives tasks to workers. One thread at a time, but for `close`.

    Workers are started when they are needed, and one that died is replaced.
    """

    def __init__(self, count: int, start: Callable[[int], Worker]) -> None:
        self.process = os.getpid()  # the workers are of
        self.closed = False
        self.has_short_indices = True
        """True if indices are numbers, of which a task may have several."""
        self.slots: Slots | None = None
        """Of the stage that tasks go to."""
        self._start = start
        self._workers: list[Worker | None] = [None] * count
        self._watched: list[Worker | None] = []  # by the poller
        self._again: deque[Task] = deque()  # of workers that died
        self._mean_seconds = 2 * TASK_SECONDS  # of an item

    def start(self) -> None:
        """Start the workers that are missing. Ctrl-C may cut this short."""
        for number in range(len(self._workers)):
            self._running(number)

    @property
    def has_room(self) -> bool:
        """True if a worker is free for another task."""
        return not self._again and min(map(self._load, range(len(self._workers)))) < self._depth

    @property
    def items(self) -> int:
        """Items that a task should have."""
        most = MOST_ITEMS if self.has_short_indices else 1
        return max(1, min(most, int(TASK_SECONDS / max(1e-9, self._mean_seconds))))

    @property
    def _depth(self) -> int:
        # A worker need not wait for its next task if that is short, and cannot be kept from others.
        return 2 if self._mean_seconds < TASK_SECONDS else 1

    def _load(self, number: int) -> int:
        worker = self._workers[number]
        return 0 if worker is None else len(worker.tasks)

    def give(self, task: Task) -> None:
        """Give a task to the worker with the least to do."""
        number = min(range(len(self._workers)), key=self._load)
        try:
            worker = self._running(number)
            worker.give(task, self.slots)
        except Exception as error:  # no process, or nothing that can be pickled
            task.fail(error)
            if task.answer is None:
                self._again.append(task)

    def _running(self, number: int) -> Worker:
        worker = self._workers[number]
        if worker is None:
            if self.closed:
                raise Closed("this EchoLoader is closed; make a new one")
            worker = self._start(number)
            self._workers[number] = worker
        return worker

    def wait(self, seconds: float) -> None:
        """Wait this long at most until a task is answered, or a worker has died."""
        for worker in self._ready(seconds):
            try:
                task = worker.collect()
            except (EOFError, OSError):
                self._bury(worker)
                continue
            if task is not None:
                self._mean_seconds += (task.seconds - self._mean_seconds) / 4
                if task.answer is None:
                    self._again.append(task)
        while self._again and not self.closed:
            number = min(range(len(self._workers)), key=self._load)
            if self._load(number) >= self._depth:
                break
            self.give(self._again.popleft())

    def _ready(self, seconds: float) -> list[Worker]:
        """Return the workers that can be read, within this time."""
        if self._watched != self._workers:
            self._poller = select.poll()
            running = [worker for worker in self._workers if worker is not None]
            self._by_descriptor = {worker.fileno(): worker for worker in running}
            for descriptor in self._by_descriptor:
                self._poller.register(descriptor, select.POLLIN)
            self._watched = [*self._workers]
        return [self._by_descriptor[ready] for ready, _ in self._poller.poll(seconds * 1e3)]

    def _bury(self, worker: Worker) -> None:
        """Forget a worker that died; others do its tasks."""
        self._workers[self._workers.index(worker)] = None
        worker.end()
        how = worker.join(1.0)
        if worker.tasks:  # it has not begun the others
            worker.tasks[0].died(how, began=worker.began)
        self._again.extend(task for task in worker.tasks if task.answer is None)
        if self.closed:
            for task in self._again:
                task.take(Reply([], Closed("this EchoLoader is closed; make a new one")))

    def close(self) -> None:
        """Have all workers end. From any thread, and from finalizers."""
        self.closed = True
        for worker in self._workers:
            if worker is not None:
                worker.end()

    def join(self, seconds: float) -> None:
        """Wait this long at most for the end of the workers."""
        deadline = time.monotonic() + seconds
        for worker in self._workers:
            if worker is not None:
                worker.join(max(0.0, deadline - time.monotonic()))
