"""Ranks make the batches of the model, also from states of other ranks or numbers of ranks."""

from __future__ import annotations

from itertools import chain, cycle, islice, repeat
from typing import Any, NamedTuple

import numpy as np
import pytest
import reference_model as model
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, rule
from members import Unsized
from reference_random import GOLDEN_GAMMA, MASK, mix64
from reference_rounds import Arrivals, Rounds, adaptive_iterations
from segments import segments_of
from worlds import Member, Told, loader_of, run_world

from pyecho import Adaptive, CheckpointError

pytestmark = pytest.mark.filterwarnings("ignore:the .* items of the source, used")

EPOCHS = 3
BATCH, SHARDS, POOL = 24, 12, 240
"""Of all ranks together, where shards are dealt to them."""
SOURCES = {"array": np.array, "told": Told, "unsized": Unsized}


class Run:
    """The sources of all ranks, and the batches that each is to yield.

    Parameters
    ----------
    lengths
        Items of each rank; or the items of all together, which are dealt to any number of ranks.
    arrivals
        Of each rank, with an adaptive factor: items that come before each batch, over and over.
    """

    def __init__(
        self,
        lengths: int | list[int],
        factor: Any,
        *,
        arrivals: tuple[tuple[int, ...], ...] = (),
        source: str = "array",
        segment_uses: int | None = None,
        **options: Any,
    ) -> None:
        self.dealt = isinstance(lengths, int)
        self.lengths = [lengths] if isinstance(lengths, int) else lengths
        self.factor, self.options = factor, options
        self.arrivals, self.source, self.segment_uses = arrivals, source, segment_uses
        self.logs: dict[int, Any] = {}

    def __repr__(self) -> str:
        given = {"source": self.source, "arrivals": self.arrivals} | self.options
        given["segment_uses"] = self.segment_uses
        given = {name: value for name, value in given.items() if value and value != "array"}
        shown = "".join(f", {name}={value!r}" for name, value in given.items())
        lengths = self.lengths[0] if self.dealt else self.lengths
        return f"Run({lengths}, {self.factor}{shown})"

    @property
    def ranks(self) -> int | None:
        """None: any number."""
        return None if self.dealt else len(self.lengths)

    def loader(self, member: Member, threads: int | None) -> Any:
        rank, ranks = member.rank, member.size
        options, factor = dict(self.options), self.factor
        if self.dealt:
            items = range(self.lengths[0])[rank::ranks]
            options |= {"batch_size": BATCH // ranks, "shuffle_buffer": POOL // ranks}
        else:
            items = range(1000 * rank, 1000 * rank + self.lengths[rank])
        if self.arrivals:
            self.expected(rank, ranks)
            factor = factor.replay(self.logs[rank])  # ranks are threads
        source = SOURCES[self.source](list(map(np.int64, items)))
        with segments_of(self.segment_uses):
            return loader_of(member, source, factor, threads=threads, **options)

    def expected(self, rank: int, ranks: int) -> list[Any]:
        """Return the batches of a rank; None at the end of each epoch."""
        if not self.dealt:
            flow = self._flow(rank, 1000 * rank)
            return list(chain.from_iterable([*batches, None] for batches in flow))
        whole = chain.from_iterable([*batches, None] for batches in self._flow(0, 0))
        return [batch and batch[rank::ranks] for batch in whole]

    def _flow(self, rank: int, first: int) -> Any:
        """Yield the batches of each epoch that the model says."""
        options, length = self.options, self.lengths[rank]
        steps, flows = options.get("steps_per_epoch"), options.get("epochs")
        plan = {name: options.get(name, 0) for name in ("seed", "drop_last")}
        plan |= {"steps": steps, "batch_size": options.get("batch_size", BATCH)}
        if self.arrivals:
            made = self._adaptive(rank, plan)
        else:
            plan |= {"factor": self.factor, "capacity": options.get("shuffle_buffer", POOL)}
            plan |= {"segment_uses": self.segment_uses, "known": self.source != "unsized"}
            plan |= {"rank": rank, "ranks": len(self.lengths), "shards": options.get("shards")}
            if steps is None:
                plan["uses"] = model.uses_of_longest(
                    max(self.lengths),
                    self.factor,
                    streams=options.get("shards", len(self.lengths)) // len(self.lengths),
                    batch_size=plan["batch_size"],
                    pad_last=options.get("pad_last", False),
                )
            if steps is not None or flows is not None:
                passes = repeat(length) if flows is None else [length] * EPOCHS
                made = model.iterations(passes, **plan)
            else:
                each = (model.iterations([length], epoch=epoch, **plan) for epoch in range(EPOCHS))
                made = map(next, each)
        for batches in islice(made, EPOCHS):
            yield [[first + use.item for use in batch] for batch in batches]

    def _adaptive(self, rank: int, plan: dict[str, Any]) -> Any:
        pool = Rounds(
            capacity=self.options["shuffle_buffer"],
            rows=self.options["batch_size"],
            most=self.factor.max,
            least=self.factor.min,
            age=self.factor.max_age,
            unique=False,
        )
        arrivals = Arrivals(repeat(self.lengths[rank]), cycle(self.arrivals[rank]), pool)
        self.logs[rank] = {0: arrivals.log}
        seed = mix64((plan["seed"] + rank * GOLDEN_GAMMA) & MASK)
        return adaptive_iterations(arrivals, epoch=0, **plan | ({"seed": seed} if rank else {}))


@st.composite
def runs(draw: Any) -> Run:
    """Draw a run. The first of each choice is the simplest."""
    extents: list[dict[str, Any]] = [{}, {"pad_last": True}, {"drop_last": True}]
    extents += [{"epochs": EPOCHS}, {"steps_per_epoch": 4}]
    options = draw(st.sampled_from(extents)) | {"seed": draw(st.integers(0, 9))}
    flows = options.keys() & {"epochs", "steps_per_epoch"}
    segment_uses = draw(st.sampled_from([None, 20, 100]))
    factor = draw(st.sampled_from([1, 2, 1.5, 3, "adaptive", "adaptive"]))
    if factor != "adaptive" and draw(st.booleans()):
        length = draw(st.integers(SHARDS, 120))
        length = length // SHARDS * SHARDS if flows else length
        return Run(length, factor, shards=SHARDS, segment_uses=segment_uses, **options)
    streams = draw(st.sampled_from([1, 2, 3]))  # of a rank
    lengths = draw(st.lists(st.integers(streams, 40), min_size=1, max_size=4))
    options |= {"batch_size": draw(st.integers(1, 6)), "shuffle_buffer": draw(st.integers(6, 20))}
    source = draw(st.sampled_from(["array", "told"]))
    if factor != "adaptive":
        if streams > 1 or draw(st.booleans()):
            options["shards"] = streams * len(lengths)
        if flows:  # as many in each stream
            lengths = [length // streams * streams for length in lengths]
        if "steps_per_epoch" in options:
            options["steps_per_epoch"] *= streams
        return Run(lengths, factor, source=source, segment_uses=segment_uses, **options)
    factor = Adaptive(draw(st.integers(1, 6)), max_age=draw(st.sampled_from([None, 2, 9])))
    come = st.lists(st.integers(0, 5), min_size=1, max_size=3).map(tuple)
    arrivals = tuple(draw(come) for _ in lengths)
    options = {name: options[name] for name in ("seed", "batch_size", "shuffle_buffer")}
    source = draw(st.sampled_from(list(SOURCES)))
    return Run(lengths, factor, arrivals=arrivals, source=source, steps_per_epoch=4, **options)


class Saved(NamedTuple):
    """States after so many batches and ends, of each rank or one for all; `ranks`: see `Run`."""

    states: list[Any]
    place: int
    ranks: int | None


class Ranks(RuleBasedStateMachine):
    """Goes on from any state in a new world."""

    saved = Bundle("saved")

    @initialize(target=saved, run=runs())
    def begin(self, run: Run) -> Saved:
        self.run = run
        return Saved([None], 0, run.ranks)

    @rule(
        target=saved,
        saved=saved,
        ranks=st.integers(1, 4),
        count=st.integers(0, 9),
        payload=st.booleans(),
        threads=st.sampled_from([None, 0, 2]),
        of_rank=st.integers(0, 3),
    )
    def go_on(
        self,
        saved: Saved,
        ranks: int,
        count: int,
        payload: bool,
        threads: int | None,
        of_rank: int,
    ) -> Saved:
        ranks, states = saved.ranks or ranks, saved.states
        expected = [self.run.expected(rank, ranks) for rank in range(ranks)]
        assert len({len(batches) for batches in expected}) == 1
        expected = [batches[saved.place : saved.place + count] for batches in expected]

        def rank_does(member: Member) -> Any:
            with self.run.loader(member, threads) as loader:
                if self.run.arrivals and len(states) > 1:
                    with pytest.raises(CheckpointError, match="rank"):
                        loader.load_state_dict(states[member.rank - 1])
                state = states[member.rank % len(states)]
                if state is None:
                    assert len(loader) == self.run.expected(member.rank, ranks).index(None)
                else:
                    loader.load_state_dict(state)
                taken: list[Any] = []
                wanted = len(expected[0])
                while len(taken) < wanted:
                    batches = iter(loader)
                    taken += (each.tolist() for each in islice(batches, wanted - len(taken)))
                    if len(taken) < wanted:
                        taken.append(None)
                return taken, loader.state_dict(payload=payload)

        results, _ = run_world(ranks, rank_does)
        assert [taken for taken, _ in results] == expected
        made = [state for _, state in results]
        place = saved.place + len(expected[0])
        is_own = payload or self.run.arrivals
        if place > 0 and is_own:
            return Saved(made, place, ranks)
        return Saved([made[of_rank % ranks]], place, self.run.ranks)


test_ranks_make_the_batches_of_the_model = Ranks.TestCase
test_ranks_make_the_batches_of_the_model.settings = settings(
    max_examples=settings.default.max_examples, stateful_step_count=8
)
