"""Ranks that go on from states of any number of ranks make the global batches of the model."""

from __future__ import annotations

from itertools import chain, islice, repeat
from typing import Any, NamedTuple

import numpy as np
import pytest
import reference_model as model
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, rule
from worlds import Member, global_batches, loader_of, run_world

pytestmark = pytest.mark.filterwarnings("ignore:the .* items of the source, used")

BATCH, SHARDS, POOL = 24, 12, 240
EPOCHS = 3
EXTENTS: list[dict[str, Any]] = [
    {},
    {"pad_last": True},
    {"drop_last": True},
    {"epochs": EPOCHS},
    {"steps_per_epoch": 4},
]


class Saved(NamedTuple):
    """States of all ranks, after so many batches and ends; `ranks`: that it serves, None: any."""

    states: list[Any]
    place: int = 0
    ranks: int | None = None


class Ranks(RuleBasedStateMachine):
    """Global batches: row r, r + R, ... is that of rank r."""

    saved = Bundle("saved")

    @initialize(
        target=saved,
        length=st.integers(SHARDS, 120),
        factor=st.sampled_from([1, 2, 1.5, 3]),
        extent=st.sampled_from(EXTENTS),
        seed=st.integers(0, 9),
    )
    def begin(self, length: int, factor: float, extent: dict[str, Any], seed: int) -> Saved:
        if extent.keys() & {"epochs", "steps_per_epoch"}:
            length = length // SHARDS * SHARDS
        self.items, self.factor = np.arange(length), factor
        self.options = extent | {"seed": seed}
        self.whole = list(chain.from_iterable([*epoch, None] for epoch in self.epochs()))
        return Saved([None])

    def epochs(self) -> Any:
        """Return the batches of each epoch that the model says for one rank."""
        length, steps = len(self.items), self.options.get("steps_per_epoch")
        plan = {"factor": self.factor, "seed": self.options["seed"], "shards": SHARDS}
        plan |= {"drop_last": "drop_last" in self.options, "batch_size": BATCH, "capacity": POOL}
        if steps is None:
            padded = "pad_last" in self.options
            plan["uses"] = model.uses_of_longest(
                length, self.factor, streams=SHARDS, batch_size=BATCH, pad_last=padded
            )
        if steps is not None:
            flow = model.iterations(repeat(length), steps=steps, **plan)
        elif "epochs" in self.options:
            flow = model.iterations([length] * EPOCHS, **plan)
        else:
            flow = chain.from_iterable(
                model.iterations([length], epoch=epoch, **plan) for epoch in range(EPOCHS)
            )
        for batches in islice(flow, EPOCHS):
            yield [[use.item for use in batch] for batch in batches]

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
        ranks = saved.ranks or ranks
        expected = self.whole[saved.place : saved.place + count]

        def rank_does(member: Member) -> Any:
            with loader_of(
                member,
                self.items[member.rank :: ranks],
                self.factor,
                batch_size=BATCH // ranks,
                shuffle_buffer=POOL // ranks,
                shards=SHARDS,
                threads=threads,
                **self.options,
            ) as loader:
                state = saved.states[member.rank % len(saved.states)]
                if state is not None:
                    loader.load_state_dict(state)
                taken: list[Any] = []
                while len(taken) < len(expected):
                    batches = iter(loader)
                    taken += (each.tolist() for each in islice(batches, len(expected) - len(taken)))
                    if len(taken) < len(expected):
                        taken.append(None)
                return taken, loader.state_dict(payload=payload)

        results, _ = run_world(ranks, rank_does)
        assert global_batches([each[0] for each in results]) == expected
        states = [each[1] for each in results]
        place = saved.place + len(expected)
        if payload:
            return Saved(states, place, ranks)
        return Saved([states[of_rank % ranks]], place)


test_global_batches_are_those_of_one_rank = Ranks.TestCase
test_global_batches_are_those_of_one_rank.settings = settings(
    max_examples=max(10, settings.default.max_examples // 3), stateful_step_count=8
)
