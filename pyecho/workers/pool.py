"""The workers of a loader, and what each of them has to do."""

from __future__ import annotations

import os
import reprlib
import select
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from pyecho._core import Closed, WorkerError
from pyecho.workers.process import Answer, Slots

TASK_SECONDS, MOST_ITEMS = 1e-3, 32
"""Items are handed out together, as many as take this long, but at most so many."""


class Task:
    """Some items to be made, one after the other."""

    def __init__(
        self,
        epoch: int,
        place: int,
        indices: list[Any],
        slots: list[int] | None = None,
        ticket: int = 0,
    ) -> None:
        self.epoch = epoch
        self.place = place  # of the first item in the epoch
        self.indices = indices
        self.slots = slots  # where the items go; None: back through the channel
        self.ticket = ticket  # of the first slot
        self.answer: Answer | None = None  # once it is there
        self.seconds = 0.0  # that the last part took, without the way to the worker and back
        self.deaths = 0  # of workers that were making the item that follows
        self._alone = False  # make one item at a time: a worker died
        self._made: list[Any] = []

    def part(self) -> tuple[int, int, list[Any], list[int] | None]:
        """Return epoch, place, indices and slots of the items that are to be made now."""
        begin = len(self._made)
        part = slice(begin, begin + 1 if self._alone else None)
        slots = None if self.slots is None else self.slots[part]
        return self.epoch, self.place + begin, self.indices[part], slots

    def take(self, values: list[Any], error: BaseException | None) -> None:
        """Take what came of that."""
        self._made += values
        self.deaths = 0
        if error is not None or len(self._made) == len(self.indices):
            self.answer = self._made, error

    def fail(self, error: BaseException) -> None:
        """Take an error that one of the items has, it is not known which: make them one by one."""
        if len(self.part()[2]) == 1:
            self.take([], error)
        self._alone = True

    def died(self, how: str, *, began: bool) -> None:
        """Have another worker make what is left, once; if that one dies as well, fail."""
        indices = self.part()[2]
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
        self.take([], WorkerError(text))


class Worker(Protocol):
    """A process or a thread that does one task after the other."""

    tasks: deque[Task]
    """Tasks it has, in their order."""

    began: bool
    """False until it has called `worker_init_fn`."""

    def fileno(self) -> int:
        """Return the descriptor that can be read once there is an answer, or the worker died."""

    def give(self, task: Task, slots: tuple[Slots, int] | None) -> None:
        """Have it do a task as well. `slots`: and the descriptor of their memory."""

    def collect(self) -> list[Task] | None:
        """Take a message, and return the task that it answers; None if the worker has died."""

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
        self.slots: tuple[Slots, int] | None = None
        """Of the stage that tasks go to, and the descriptor of their memory."""
        self._start = start
        self._workers: list[Worker | None] = [None] * count
        self._again: deque[Task] = deque()  # of workers that died
        self._poller = select.poll()
        self._by_descriptor: dict[int, int] = {}
        self._mean_seconds = 2 * TASK_SECONDS  # of an item

    def start(self) -> None:
        """Start the workers that are missing. Ctrl-C may cut this short."""
        for number in range(len(self._workers)):
            self._watch(number, self._running(number))

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
            self._watch(number, worker)
        return worker

    def _watch(self, number: int, worker: Worker) -> None:
        descriptor = worker.fileno()
        self._by_descriptor[descriptor] = number
        self._poller.register(descriptor, select.POLLIN)

    def wait(self, seconds: float) -> None:
        """Wait this long at most until a task is answered, or a worker has died."""
        for descriptor, _ in self._poller.poll(seconds * 1e3):
            number = self._by_descriptor[descriptor]
            worker = self._workers[number]
            assert worker is not None
            items = len(worker.tasks[0].part()[2]) if worker.tasks else 0
            tasks = worker.collect()
            if tasks is None:
                self._bury(number, worker)
                continue
            self._again.extend(task for task in tasks if task.answer is None)
            for task in tasks:
                self._mean_seconds += (task.seconds / items - self._mean_seconds) / 4
        while self._again and not self.closed:
            number = min(range(len(self._workers)), key=self._load)
            if self._load(number) >= self._depth:
                break
            self.give(self._again.popleft())

    def _bury(self, number: int, worker: Worker) -> None:
        """Forget a worker that died; others do its tasks."""
        self._poller.unregister(worker.fileno())
        self._workers[number] = None
        worker.end()
        how = worker.join(1.0)
        if worker.tasks:  # it has not begun the others
            worker.tasks[0].died(how, began=worker.began)
        self._again.extend(task for task in worker.tasks if task.answer is None)
        if self.closed:
            for task in self._again:
                task.take([], Closed("this EchoLoader is closed; make a new one"))

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
