"""Loaders and buffers agree with the reference model, use by use, whatever makes the batches."""

from itertools import chain

import numpy as np
import pytest
import reference_model as model
from hypothesis import given, settings
from hypothesis import strategies as st

import pyecho
from pyecho import _core

many = settings(max_examples=max(300, settings.default.max_examples))
factors = st.one_of(
    st.integers(1, 6), st.floats(1, 5, allow_nan=False), st.sampled_from([1.5, 2.25, 3.999])
)
seeds = st.one_of(st.integers(0, 5), st.integers(0, 2**64 - 1))


@st.composite
def configurations(draw):
    """Arguments of `model.iterations`."""
    batch_size, unique = draw(st.integers(1, 9)), draw(st.booleans())
    least = batch_size if unique else 0
    return {
        "factor": draw(factors),
        "capacity": draw(st.one_of(st.integers(least, least + 12), st.integers(least, 200))),
        "batch_size": batch_size,
        "unique_in_batch": unique,
        "drop_last": draw(st.booleans()),
        "seed": draw(seeds),
    }


@pytest.mark.filterwarnings("ignore:the .* items of the source, used")
@many
@given(items=st.integers(1, 60), configuration=configurations(), epoch=st.integers(0, 2**63))
def test_loader_emits_what_the_model_says_for_any_seed_epoch_and_factor(
    items, configuration, epoch
):
    [expected] = model.iterations([items], epoch=epoch, **configuration)
    capacity = configuration.pop("capacity")
    source = np.arange(items)
    loader = pyecho.EchoLoader(source, shuffle_buffer=capacity, with_info=True, **configuration)
    loader.set_epoch(epoch)
    emitted = [list(map(model.Use, batch.tolist(), info.use.tolist())) for batch, info in loader]
    assert emitted == expected
    assert loader.stats().emitted == sum(map(len, expected))


@many
@given(
    items=st.integers(1, 40),
    configuration=configurations(),
    threads=st.sampled_from([None, 0, 1, 2]),
    steps=st.one_of(st.none(), st.none(), st.integers(1, 12)),
    way=st.sampled_from(["put", "put_batch", "reserve"]),
)
def test_buffer_fed_by_hand_emits_what_the_model_says(items, configuration, threads, steps, way):
    iterations = model.iterations([items], known=False, steps=steps, **configuration)
    expected = [[use.item for use in batch] for batches in iterations for batch in batches]
    buffer = pyecho.EchoBuffer(
        pyecho.Field((), int),
        shuffle_buffer=configuration.pop("capacity"),
        threads=threads,
        steps_per_epoch=steps,
        **configuration,
    )
    emitted = []

    def take():
        for batch in buffer:
            emitted.append(batch.tolist())
            return

    def put(item):
        if way == "put":
            buffer.put(item, timeout=0)
        elif way == "put_batch":
            buffer.put_batch(np.array([item]), timeout=0)
        else:
            with buffer.reserve(timeout=0) as view:
                view[...] = item

    for item in range(items):
        while True:
            try:
                put(item)
                break
            except pyecho.PutTimeout:  # every slot is in use: so there is a batch, or will be
                take()
    buffer.close()
    while len(emitted) < len(expected):
        take()
    assert list(buffer) == []
    assert emitted == expected


# ---------------------------------------------------------------- the model itself


@given(items=st.integers(0, 200), factor=factors, seed=seeds, epoch=seeds, known=st.booleans())
def test_pass_has_exactly_the_rounded_number_of_uses(items, factor, seed, epoch, known):
    uses = list(model.uses_of_items(items, factor, seed, epoch, known))
    assert all(int(factor) <= each <= factor + 1 for each in uses)
    total = sum(uses)
    assert total == model.uses_of_pass(items, factor) == _core.uses_of_pass(items, factor)
    assert abs(total - items * factor) <= 0.5


@pytest.mark.parametrize("factor", [1.25, 1.5, 2.75])
def test_items_of_a_known_pass_get_one_more_use_equally_often(factor):
    passes, items = 2000, 20
    loader = pyecho.EchoLoader(range(items), factor)
    counts = np.bincount(list(chain.from_iterable(loader for _ in range(passes))))
    chance = factor % 1
    extra = (counts - passes * int(factor)) / passes
    assert abs(extra - chance).max() < 4.5 * (chance * (1 - chance) / passes) ** 0.5
