"""An adaptive factor draws what its reference model draws, for any arrivals of items."""

from __future__ import annotations

from itertools import cycle, islice, repeat
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference_rounds import Arrivals, Rounds, adaptive_iterations

import pyecho


@pytest.mark.filterwarnings("ignore:the .* items of the source, used")
@given(
    items=st.integers(1, 60),
    batch_size=st.integers(1, 4),
    room=st.integers(0, 6),
    least=st.integers(1, 3),
    more=st.integers(0, 5),
    age=st.sampled_from([None, 1, 3, 9]),
    unique=st.booleans(),
    drop_last=st.booleans(),
    flow=st.sampled_from([{}, {"epochs": 2}, {"steps_per_epoch": 5}]),
    arrivals=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    threads=st.sampled_from([0, 1, 2]),
)
def test_adaptive_makes_the_batches_of_the_model(
    items: int,
    batch_size: int,
    room: int,
    least: int,
    more: int,
    age: int | None,
    unique: bool,
    drop_last: bool,
    flow: dict[str, Any],
    arrivals: list[int],
    threads: int,
) -> None:
    pool = Rounds(
        capacity=batch_size + room,
        rows=batch_size,
        most=least + more,
        least=least,
        age=age,
        unique=unique,
    )
    passes = repeat(items) if "steps_per_epoch" in flow else [items] * flow.get("epochs", 1)
    come = Arrivals(passes, cycle(arrivals), pool)
    steps = flow.get("steps_per_epoch")
    options: dict[str, Any] = {"batch_size": batch_size, "drop_last": drop_last, "seed": 7}
    expected = list(islice(adaptive_iterations(come, epoch=0, steps=steps, **options), 3))
    factor = pyecho.Adaptive(least + more, least, max_age=age).replay({0: come.log})
    options |= {"shuffle_buffer": batch_size + room, "unique_in_batch": unique, **flow}
    source = list(range(items))
    with pyecho.EchoLoader(source, factor, threads=threads, with_info=True, **options) as loader:
        for batches in expected:
            found = [(info.source_index.tolist(), info.use.tolist()) for _, info in loader]
            assert [list(zip(*batch, strict=True)) for batch in found] == batches
