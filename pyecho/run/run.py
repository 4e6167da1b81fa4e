"""The run of a loader: the threads of its stages, and one epoch after the other."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

from pyecho import _core
from pyecho._core import CheckpointError, Closed, EchoError
from pyecho.config import Config
from pyecho.run.context import CallerContext
from pyecho.run.notices import (
    warn_of_going_on,
    warn_of_more,
    warn_of_no_batch,
    warn_of_nothing,
)
from pyecho.run.ranks import (
    ENDLESS,
    JOINT_AHEAD,
    JOINT_STEPS,
    STEPS,
    Agreement,
    Evened,
    Extent,
    Group,
    agree,
    end_of_all,
    until_look,
    with_fillers,
)
from pyecho.run.stages import Stages
from pyecho.run.threads import EXIT_SECONDS, Worker, close_at_exit
from pyecho.source.passes import Opening, passes_over
from pyecho.source.source import Source
from pyecho.state.check import SavedState, without_payload
from pyecho.state.resume import NOTHING, Resumption
from pyecho.stats import EchoStats

SLICE_SECONDS = 0.05
"""A wait checks this often whether the run was closed."""

_FLOWS = object()
"""Stands for the token of an iteration where the next epoch has begun by itself."""


class Run:
    """Owns the stages and threads of a loader, from its first epoch to its end.

    An iterator that is dropped half-way ends its epoch: the threads leave, and what they have read
    is dropped; or, if the source is an iterator, it is kept for the next epoch.

    `_finish` and `close` may be called from any thread, and by the garbage collector at any point.
    So there is no lock: whatever changes the run takes its turn, and what cannot have it at once is
    left to the call that is under way. A call may be cut short by Ctrl-C wherever it is, and the
    next one finds the run fit for use.
    """

    _closed = True  # until it is made
    # Attributes, because a late finalizer finds the names of this module gone.
    _getpid = staticmethod(os.getpid)
    # Stages of the process that this one was forked from: memory on a device cannot be freed here.
    _of_parents: ClassVar[list[Any]] = []

    def __init__(
        self,
        source: Source,
        config: Config,
        make_stages: Callable[..., Stages],  # of (source, config, first item), see there
        *,
        by_consumer: bool,  # the consumer's thread reads the source, and the run has no threads
        group: Group | None = None,  # runs that are to have equally many batches
    ) -> None:
        self._source = source
        self._config = config
        self._make_stages = make_stages
        self._by_consumer = by_consumer
        self._group = group
        self._past = EchoStats()  # of stages that are gone
        self.held = 0
        """Batches that the consumer holds at a time, besides those of a loop."""
        self.keeps = False
        """True if the consumer's library holds more of them for a while, without a warning."""
        self.epoch = 0
        """Number of the running epoch, else of the next one."""
        self._forget()
        self._closed = False
        close_at_exit(self)

    def _forget(self) -> None:
        self._process = self._getpid()
        self._turns = _core.Turns()
        self._opening: Opening | None = None  # of the epoch that is about to begin
        self._stages: Stages | None = None  # made with the first item
        self._saved: SavedState | None = None  # the next epoch goes on there
        self._flow: tuple[int, int | None] = (0, None)  # its first epoch; items of a pass, if known
        self._context = CallerContext()  # of the thread that began it
        self._begun: object | None = None  # the epoch's token; None: it has not begun
        self._length: int | None = None  # batches of the epoch, if known
        self._agreed = Agreement(Extent())
        self._last: int | None = None  # batches of all iterations, once the ranks have agreed
        self._is_empty = False  # the epoch has no item, and uses no stages
        self._workers: list[Worker] = []  # the feeder, then those of the links

    def _leave_parent(self) -> None:
        """Start anew in a forked process: the threads stayed in its parent."""
        if self._process != self._getpid():
            self._of_parents.append(self._stages)
            self._forget()

    # ------------------------------------------------------------ from any thread

    def iterate(self) -> Iterator[Any]:
        """Return an iterator for the next epoch, which begins with its first ``next()``.

        The run knows only its token, so it dies with its iterators.
        """
        self._check_open()
        token = object()
        begin, finish = partial(self._begin, token), partial(self._finish, token)
        batches = _core.iterate(SimpleNamespace(begin=begin, finish=finish))
        if self._group is None:
            return batches
        end = partial(self._turns.run, partial(self._end_in_turn, token))
        return Evened(batches, partial(self._look, token), end)

    def _begin(self, token: object) -> tuple[Any, int]:
        """Begin the next epoch, at the first ``next()``, and end an unfinished one.

        Returns the consumer's stage and its generation, by which the iterator knows that a later
        iteration has begun.
        """
        self._leave_parent()
        begun: tuple[Any, int] = self._turns.run(partial(self._begin_in_turn, token))
        return begun

    def _finish(self, token: object, completed: bool) -> None:
        """End the epoch of an iteration: at its end, or because its iterator died."""
        if not self._closed and self._process == self._getpid():
            self._turns.post(partial(self._finish_in_turn, token, completed))

    def _look(self, token: object) -> int:
        """Return how many batches follow until the next look; 0: the epoch is over. Collective.

        Looks are due where the ranks do not know the end: behind batches 1, 2, 4, 8 and then every
        `STEPS` batches of an epoch; behind each where there is nobody to ask. An adaptive factor
        has looks of its own, see `pyecho.run.ranks.decide`.
        """
        stages, group = self._stages, self._group
        if self._is_over:
            return 0
        begun = self._begun is token
        if stages is None or not (begun or self.flows):
            return 1  # the next batch begins the epoch
        taken = stages.consumed._delivered if begun else 0
        before = (self.epoch - self._flow[0]) * (self._config.steps_per_epoch or 0)
        if group is not None and self._config.joint:
            ends = self._config.steps_per_epoch is None  # the passes of an epoch
            return stages.decide(group, before + taken, self._agreed.items if ends else None)
        if group is None or self._agreed.extent.total_uses != ENDLESS:
            return STEPS
        steps = 1 if self._config.alone else STEPS
        rest = until_look(taken, steps)
        if self._last is None and taken & (taken - 1 if taken < steps else steps - 1) == 0:
            self._last = end_of_all(group, before + taken, stages.own_batches(before + taken))
        if self._last is None:
            return rest
        if self._agreed.extent.iteration_uses == ENDLESS:
            self._length = self._last
        return max(0, self._last - before - taken)

    def set_epoch(self, epoch: int) -> None:
        """Choose the number of the next epoch; an unfinished one ends."""
        self._turns.post(partial(self._set_epoch, epoch))

    def state(self, payload: bool) -> tuple[int, dict[str, Any] | None, Any]:
        """Return the epoch, where the consumer is in it, and the state of the source."""
        if self._process != self._getpid() and self._begun is not None:
            raise EchoError(
                "the iteration of this loader is one of the process that was forked, where the "
                "items are; take its state there"
            )
        self._leave_parent()
        found: tuple[int, dict[str, Any] | None, Any]
        found = self._turns.run(partial(self._state_in_turn, payload))
        return found

    def load(self, saved: SavedState) -> None:
        """Have the next iteration go on where a state was taken; an unfinished one ends."""
        self._leave_parent()
        self._turns.run(partial(self._load_in_turn, saved))

    def close(self) -> None:
        """End everything. Threads inside a source end when the source returns."""
        self._closed = True  # first: whoever waits in a turn looks at it
        if self._process == self._getpid():
            self._turns.post(self._end)

    def join(self) -> None:
        """Wait for the threads that were told to end, `EXIT_SECONDS` at most."""
        deadline = time.monotonic() + EXIT_SECONDS
        for worker in tuple(self._workers):
            if worker.ending:
                worker.done(max(0.0, deadline - time.monotonic()))

    def __del__(self) -> None:
        """End with the loader and its iterators."""
        if self._closed:
            return
        if self._process != self._getpid():
            self._of_parents.append(self._stages)
        else:
            self.close()

    def copied(self) -> tuple[int, int, SavedState | None]:
        """Return what a copy of the loader goes on with, see `restore`."""
        return self.epoch + self.unfinished, self.held, self._saved

    def restore(self, epoch: int, held: int, saved: SavedState | None) -> None:
        """Be the run of a copy, before it begins."""
        self.epoch, self.held, self._saved = epoch, held, saved

    @property
    def place(self) -> tuple[int, int]:
        """First epoch of the passes that flow into the next one, and iterations since then."""
        if self._saved is not None and self._saved.flow is not None:
            return self._saved.flow.epoch, self._saved.flow.iterations
        return (self._flow[0], self.epoch - self._flow[0]) if self.flows else (self.epoch, 0)

    @property
    def flows(self) -> bool:
        """True if the next epoch has begun by itself."""
        return self._begun is _FLOWS

    @property
    def unfinished(self) -> bool:
        """True if an iteration has begun and is not at its end."""
        return self._begun is not None and self._begun is not _FLOWS

    @property
    def at_last_batch(self) -> bool:
        """True if the consumer has the last batch of the running epoch, as far as that is known."""
        stages = self._stages
        return stages is not None and stages.consumed._delivered == self._length

    @property
    def longest(self) -> int | None:
        """Items of the longest source, as the ranks have agreed for the epoch that began last."""
        return self._agreed.items

    @property
    def saved_batches(self) -> int:
        """Batches of its epoch that were taken when a loaded state was; 0 without one."""
        flow = None if self._saved is None else self._saved.flow
        return 0 if flow is None else flow.taken[1]

    @property
    def _is_over(self) -> bool:
        """True if a loaded state was taken behind the last batch that the ranks had agreed on."""
        flow = None if self._saved is None else self._saved.flow
        if flow is None or flow.iteration_uses != ENDLESS or flow.last is None:
            return False
        return self.saved_batches >= flow.last

    @property
    def flows_from_saved_end(self) -> bool:
        """True if a loaded state has only the end of its epoch left, and another one flows on."""
        flow = None if self._saved is None else self._saved.flow
        if flow is None or not self._passes_follow():
            return False
        return self.saved_batches == self._config.batches_of(flow.longest)

    def stats(self) -> EchoStats:
        """Return the counts and times of all epochs so far."""
        stages = self._stages  # another thread may drop them meanwhile
        return self._past if stages is None else self._past + stages.stats()

    # ------------------------------------------------------------ in turn

    def _begin_in_turn(self, token: object) -> tuple[Any, int]:
        self._check_open()
        self._settle()
        self._retire()
        again = self._begun is token  # an earlier attempt was cut short
        if self.unfinished:
            self._opening = None  # should Ctrl-C have left it there: the stages have it
            self._leave()
        if self._stages is not None and self.unfinished:
            self._begun = token  # first: where the warning is an error, the next attempt goes on
            if not again:
                warn_of_going_on(self._source)
            self._await_workers()
            self._stages.set_paused(False)
            self._set_to_work(self._stages, CallerContext())
            stage = self._stages.consumed
        elif self._stages is not None and self._begun is _FLOWS:
            self._begun = token
            stage = self._stages.consumed
        else:
            stage = self._start(token)
        return stage, stage._generation  # no other iteration has retired this one yet

    def _finish_in_turn(self, token: object, completed: bool) -> None:
        if self._begun is token and not completed:
            self._settle()
        if self._begun is not token:
            return  # another one has begun since, or it is settled
        stages = self._stages
        at_end = stages is None or self._is_empty or stages.consumed._at_end
        if not completed and not at_end:
            self._leave()
            return
        if stages is not None and at_end:
            stages.stop_if_failed()
        exceeded = self._source.exceeded
        if not at_end and not self._passes_follow():  # native sources are not bounded
            exceeded = self._source.native
            at_end = True
            self._stop()
        self._begun = None if at_end else _FLOWS
        self.epoch += 1
        if exceeded:
            self._source.exceeded = False
            warn_of_more(self._source, self._agreed.extent.items)

    def _end_in_turn(self, token: object) -> None:
        if self._is_over:
            assert self._saved is not None
            self._source.load(self._saved.source)
            self._saved = None
            self.epoch += 1
        elif self.flows:
            self._abandon()
            self.epoch += 1
        elif self._begun is token and self._stages is not None:
            error = self._stages.take_failure()
            self._length = self._stages.consumed._delivered
            self._settle()
            if error is not None:
                raise error

    def _settle(self) -> None:
        """End an iteration of which nothing is left but its end: loops that count end before it."""
        stages = self._stages
        if not self.unfinished or stages is None or stages.consumed._delivered != self._length:
            return
        self._retire(completed=True)
        if self._passes_follow():
            self._begun = _FLOWS
            self.epoch += 1
        else:
            self._abandon()

    def _passes_follow(self) -> bool:
        """Return True if another pass follows the one of this epoch without a break."""
        config = self._config
        if self._source.one_shot or config.steps_per_epoch is not None:
            return config.steps_per_epoch is not None
        return config.epochs is not None and self.epoch + 1 < config.epochs

    def _set_epoch(self, epoch: int) -> None:
        self._settle()
        if epoch == self.epoch and not self.unfinished:
            return
        self._saved = None
        if not self._source.one_shot:
            self._retire()
            self._abandon()
            self._opening = None
        self.epoch = epoch

    def _end(self) -> None:
        self._stop()
        self._drop_stages()
        self._opening = None
        self._begun = None

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("this EchoLoader is closed; make a new one")

    def _retire(self, *, completed: bool = False) -> None:
        """End the iterators there are; they raise `Closed`, unless they are at their end."""
        if self._stages is not None:
            self._stages.consumed._retire(completed=completed)

    def _leave(self) -> None:
        """End an unfinished epoch; what an iterator has left is kept, and the epoch goes on."""
        if self._source.one_shot and self._stages is not None and not self._stages.consumed._at_end:
            self._stages.set_paused(True)
            self._let_go()
        else:
            self._abandon()

    def _abandon(self) -> None:
        """Drop what the epoch that has begun has left."""
        if self._begun is None:
            return
        self._stop()
        self.epoch += self.unfinished
        self._begun = None

    def _stop(self) -> None:
        if self._stages is not None:
            self._stages.stop()
        self._let_go()

    def _drop_stages(self) -> None:
        if self._stages is not None:
            self._stages.stop()
            past = replace(self._stages.stats(), occupancy=0.0, outstanding_leases=0)
            self._stages, self._past = None, self._past + past

    def _start(self, token: object) -> Any:
        """Begin a pass: with the stages there are, or read the first item and make them."""
        saved = self._saved
        if saved is not None and saved.flow is None:
            self._source.load(saved.source)
            self._saved = saved = None
        flow = None if saved is None else saved.flow
        context = self._context = CallerContext()
        self._await_workers()
        if self._opening is None:
            self._opening = self._open(saved)
        opening, group = self._opening, self._group
        self._read_first(opening, context)
        items = opening.items if flow is None else flow.items
        capacity = self._config.capacity_for(items)
        if self._stages is not None and (flow or capacity > self._stages.config.capacity):
            self._drop_stages()  # the source has grown; or this attempt was cut short before
        if group is not None and not opening.is_agreed:
            taken = None if flow is None else flow.taken
            agreed = agree(group, self._config, self._source, items, opening, self.epoch, taken)
            opening.agreement, opening.is_agreed = agreed, True
            if agreed is not None and agreed.fillers:
                opening.passes = with_fillers(opening.passes, agreed)
            if agreed is not None and self._source.pass_items is not None:
                self._source.pass_items = agreed.items
        first = self._example(opening)
        if group is not None and flow is None:
            if opening.agreement is None:
                first = NOTHING
            elif first is NOTHING:
                first = opening.agreement.example[0]
        if first is NOTHING:
            return self._start_empty(token, opening)
        if self._stages is None:
            close_at_exit(self)  # before whatever the source has registered
            there = 0 if self._config.adaptive else capacity  # else items that have left are
            ahead = max(1, flow.count - there) if flow else 1
            if self._config.joint and self._config.max_bytes is None:  # what arrives between looks
                ahead += (JOINT_STEPS + JOINT_AHEAD) * (self._config.batch_size or 1)
            config = replace(
                self._config,
                shuffle_buffer=capacity,
                held=2 + self.held,
                keeps=self.keeps,
                burst=ahead,
            )
            self._stages = self._make_stages(
                self._source, config, first, by_consumer=self._by_consumer
            )
        if flow is not None:
            self._agreed = Agreement(flow.extent, flow.longest, flow.lengths)
        else:
            self._agreed = opening.agreement or Agreement(Extent(items), items)
        self._last = None if flow is None else flow.last
        self._length = self._config.batches_of(self._agreed.items)
        if items and self._length == 0:
            warn_of_no_batch(self._config, items)
        if flow is None:
            self._stages.begin(self.epoch, self._agreed.extent, opening)
        else:
            self._stages.resume(opening)
        self._flow = (flow.epoch if flow else self.epoch, items)
        self._is_empty = False
        self._begun = token
        self._opening = self._saved = None
        self._set_to_work(self._stages, context)
        return self._stages.consumed

    def _open(self, saved: SavedState | None) -> Opening:
        """Return what is to be read, in the middle of an epoch if a state is to go on."""
        source, config = self._source, self._config
        flow = None if saved is None else saved.flow
        resumed, epoch = None, self.epoch
        source.exceeded = False
        source.bounded = not config.alone and config.steps_per_epoch is None
        source.pass_items = None
        if config.joint and config.steps_per_epoch is None:
            source.pass_items = math.inf if flow is None else flow.longest
        if saved is not None and flow is not None:
            config = replace(config, shuffle_buffer=config.capacity_for(flow.items))
            resumed, epoch = Resumption(saved, flow, config, source), flow.epoch
        passes = passes_over(source, self._config, epoch, resumed)
        return Opening(passes, source, resumed, least=config.streams)

    def _example(self, opening: Opening) -> Any:
        """Return the first item, or one like it; `NOTHING` if there is none."""
        if self._source.native and opening.error is None:
            return self._source.example()
        if opening.resumed is None:
            return opening.first
        if opening.error is not None:
            if not self._source.one_shot:  # else it cannot be read a second time
                self._opening = None
            raise opening.error
        opening.resumed.end(self._source)
        return opening.resumed.example(self._source, opening.first)

    # ------------------------------------------------------------ states

    def _state_in_turn(self, payload: bool) -> tuple[int, dict[str, Any] | None, Any]:
        self._check_open()
        if self._saved is not None:  # nothing has happened since
            raw, checked = self._saved.raw, self._saved.flow
            if payload or checked is None or not checked.payload:
                return raw["epoch"], raw["flow"], raw["source"]
            if raw["source"] is not None:
                raise self._needs_payload()
            return raw["epoch"], without_payload(raw["flow"], checked), None
        if any(worker.is_current for worker in self._workers):
            raise EchoError("the source and augment cannot take a state of the loader they serve")
        if self._begun is None and self._opening and self._source.stateful is self._source.object:
            raise EchoError(
                "the beginning of this epoch was cut short, and its source may be an item ahead; "
                "take the state behind the next batch"
            )
        if self._stages is None or self._begun is None:
            return self.epoch, None, self._source.state()
        if self._agreed.lacking:
            raise EchoError(
                "an epoch in which a shard has no item has no state: some ranks or shards have "
                "nothing to read again; use as many items as shards, or save between epochs"
            )
        stateful = self._source.stateful is not None
        if (stateful or self._source.native) and not payload:
            raise self._needs_payload()
        with self._at_rest(self._stages, reading=stateful):
            flow = self._stages.state(payload=payload, with_held=stateful)
            source = self._source.state() if stateful else None
        epoch, _ = self._flow
        return (
            self.epoch,
            {
                "epoch": epoch,
                **asdict(self._agreed.extent),
                "last": self._last,
                "lengths": self._agreed.lengths,
                **flow,
            },
            source,
        )

    def _needs_payload(self) -> EchoError:
        return EchoError(
            f"the source ({type(self._source.object).__name__}) cannot yield single items again, "
            "because it goes on by a state of its own or fills slots itself: use "
            "state_dict(payload=True)"
        )

    @contextmanager
    def _at_rest(self, stages: Stages, *, reading: bool) -> Iterator[None]:
        """Keep the threads of the links out of the stages, and if `reading` also the feeder."""
        workers = self._workers if reading else self._workers[1:]
        if not workers:
            yield
            return
        left = any(worker.ending for worker in workers)  # and paused: see _leave()
        try:
            stages.set_paused(True)
            for worker in workers:
                self._await(worker)
            yield
        finally:
            if not left and not self._closed:
                stages.set_paused(False)
                self._set_to_work(stages, self._context)

    def _load_in_turn(self, saved: SavedState) -> None:
        self._check_open()
        flow, source = saved.flow, self._source
        if flow is not None and saved.source is None and source.one_shot and self.stats().fresh:
            raise CheckpointError(
                f"the source ({type(source.object).__name__}) is an iterator that has been read "
                "from, and cannot go back; load the state into a new loader over a new iterator"
            )
        self._retire()
        self._stop()
        self._drop_stages()
        self._opening = None
        self._begun = None
        self.epoch = saved.epoch
        self._saved = saved

    def _start_empty(self, token: object, opening: Opening) -> Any:
        """Begin an epoch without items, and so without stages. Return a stage that has ended."""
        self._opening = None
        error, opening.error = opening.error, None  # its traceback refers to the opening
        ended = _core.EchoQueue(Config(prefetch=1))
        if error is None:
            ended.close()
            if opening.resumed is None:  # else it has yielded what there was before
                warn_of_nothing(self._source, self.stats().fresh)
        else:
            ended.fail(error)
        self._begun = token
        self._saved = self._last = None
        self._agreed, self._is_empty = Agreement(Extent()), True
        return ended

    def _read_first(self, opening: Opening, context: CallerContext) -> None:
        """Read the first item, in the thread that will read the others."""
        if self._by_consumer:
            opening.read()
            if isinstance(opening.error, KeyboardInterrupt):  # the next call begins again
                self._opening = None
                raise opening.error
        else:
            if not self._workers:
                self._workers.append(Worker("feeder"))
            # A second time, if Ctrl-C has cut short the first: then there is nothing left to do.
            self._workers[0].give(partial(opening.read, context))
            self._await(self._workers[0])
        self._past += EchoStats(source_seconds=opening.seconds)
        opening.seconds = 0.0

    # ------------------------------------------------------------ threads

    def _set_to_work(self, stages: Stages, context: CallerContext) -> None:
        """Give the feeder and the threads of the links their work for this pass."""
        jobs = stages.jobs(context)
        for name, _ in jobs[len(self._workers) :]:
            self._workers.append(Worker(name))
        for worker, (_, job) in zip(self._workers, jobs, strict=True):
            worker.give(job)

    def _let_go(self) -> None:
        """Tell the workers to end; they may still be inside the source."""
        for worker in self._workers:
            worker.end()

    def _await_workers(self) -> None:
        """Wait for threads that may still be inside the source or a stage."""
        for worker in self._workers:
            self._await(worker)
        self._workers = [worker for worker in self._workers if not worker.ending]

    def _await(self, worker: Worker) -> None:
        """Wait until a worker is done; answers Ctrl-C and close()."""
        while not worker.done(SLICE_SECONDS):
            self._check_open()
