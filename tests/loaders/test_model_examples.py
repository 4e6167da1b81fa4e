"""Example echoing agrees with the reference model, element by element."""

from itertools import pairwise

import numpy as np
import pytest
import reference_model as model
from hypothesis import given
from hypothesis import strategies as st
from rows import rows_of

import pyecho

factors = st.one_of(
    st.integers(1, 6), st.floats(1, 5, allow_nan=False), st.sampled_from([1.0, 1.5, 2.25, 3.999])
)
seeds = st.one_of(st.integers(0, 5), st.integers(0, 2**64 - 1))
epochs = st.one_of(st.integers(0, 3), st.integers(0, 2**63))


@st.composite
def configurations(draw):
    unique = draw(st.booleans())
    batch_size = draw(st.integers(1, 9))
    least = batch_size if unique else 0
    return {
        "factor": draw(factors),
        "capacity": draw(st.one_of(st.integers(least, least + 12), st.integers(least, 200))),
        "batch_size": batch_size,
        "unique_in_batch": unique,
        "drop_last": draw(st.booleans()),
        "seed": draw(seeds),
        "epoch": draw(epochs),
    }


def loader_of(source, configuration, **more):
    arguments = dict(configuration, **more)
    epoch = arguments.pop("epoch")
    arguments["shuffle_buffer"] = arguments.pop("capacity")
    loader = pyecho.EchoLoader(source, **arguments)
    loader.set_epoch(epoch)
    return loader


def example(item):
    """An example from which every byte tells where it comes from."""
    return {"row": np.full(5, item, np.int32), "number": item * 7, "name": f"item {item}"}


def expected_batch(batch):
    items = [use.item for use in batch]
    return (
        [[item] * 5 for item in items],
        [item * 7 for item in items],
        [f"item {item}" for item in items],
        items,
        [use.use for use in batch],
    )


def emitted_batch(batch, info):
    assert info.source_index.dtype == np.int64
    assert info.use.dtype == np.int32
    return (
        batch["row"].tolist(),
        batch["number"].tolist(),
        batch["name"],
        info.source_index.tolist(),
        info.use.tolist(),
    )


@given(
    items=st.integers(1, 60),
    configuration=configurations(),
    threads=st.sampled_from([1, 2, 4]),
    prefetch=st.integers(1, 5),
)
def test_batches_are_those_of_the_model(items, configuration, threads, prefetch):
    source = [example(item) for item in range(items)]
    loader = loader_of(source, configuration, threads=threads, prefetch=prefetch, with_info=True)
    emitted = [emitted_batch(*batch) for batch in loader]
    assert emitted == [expected_batch(batch) for batch in model.batches(items, **configuration)]


@given(
    cuts=st.lists(st.integers(0, 13), min_size=1, max_size=12).filter(sum),
    configuration=configurations(),
    threads=st.sampled_from([1, 2, 4]),
)
def test_unbatched_sources_of_uneven_sizes_make_the_same_batches(cuts, configuration, threads):
    ends = np.cumsum([0, *cuts])
    items = int(ends[-1])
    source = [
        {
            "row": np.repeat(np.arange(start, end, dtype=np.int32)[:, None], 5, axis=1),
            "number": np.arange(start, end) * 7,
            "name": [f"item {item}" for item in range(start, end)],
        }
        for start, end in pairwise(ends)
    ]
    loader = loader_of(source, configuration, threads=threads, unbatch=True, with_info=True)
    emitted = [emitted_batch(*batch) for batch in loader]
    assert emitted == [expected_batch(batch) for batch in model.batches(items, **configuration)]


@given(items=st.integers(1, 40), configuration=configurations())
def test_a_buffer_fed_by_hand_makes_the_same_batches(items, configuration):
    configuration = dict(configuration, capacity=max(1, configuration["capacity"]))
    expected = [[use.item for use in batch] for batch in model.batches(items, **configuration)]
    buffer = pyecho.EchoBuffer(pyecho.Field((), np.int64), **configuration)
    batches = iter(buffer)
    emitted = []
    for item in range(items):
        while True:
            try:
                buffer.put(item, timeout=0)
                break
            except pyecho.PutTimeout:  # every slot is in use: so there is a batch, or will be
                emitted.append(next(batches).tolist())
    buffer.close()
    emitted += [batch.tolist() for batch in batches]
    assert emitted == expected


@given(items=st.integers(1, 60), configuration=configurations())
def test_every_item_is_emitted_exactly_as_often_as_its_factor_says(items, configuration):
    configuration = dict(configuration, drop_last=False)
    loader = loader_of(np.arange(items), configuration)
    emitted = rows_of(loader)
    counts = np.bincount(emitted, minlength=items).tolist()
    factor, seed, epoch = (configuration[name] for name in ("factor", "seed", "epoch"))
    assert counts == [model.uses_of(item, factor, seed, epoch) for item in range(items)]


@given(configuration=configurations(), items=st.integers(1, 60))
def test_uses_of_an_item_are_counted_from_zero(configuration, items):
    configuration = dict(configuration, drop_last=False)
    seen = dict.fromkeys(range(items), 0)
    for _, info in loader_of(np.arange(items), configuration, with_info=True):
        for item, use in zip(info.source_index.tolist(), info.use.tolist(), strict=True):
            assert use == seen[item]
            seen[item] += 1
    assert all(seen.values())


@given(configuration=configurations(), items=st.integers(1, 60))
def test_unique_batches_hold_no_item_twice(configuration, items):
    configuration["capacity"] = max(configuration["capacity"], configuration["batch_size"])
    configuration["unique_in_batch"] = True
    for batch in loader_of(np.arange(items), configuration):
        assert len(set(batch.tolist())) == len(batch)


@given(configuration=configurations(), items=st.integers(1, 60))
def test_drop_last_leaves_out_exactly_the_short_batches(configuration, items):
    size = configuration["batch_size"]
    every = [b.tolist() for b in loader_of(np.arange(items), dict(configuration, drop_last=False))]
    whole = [b.tolist() for b in loader_of(np.arange(items), dict(configuration, drop_last=True))]
    assert whole == [batch for batch in every if len(batch) == size]


@pytest.mark.parametrize("factor", [1.25, 1.5, 2.75])
def test_the_fraction_is_drawn_for_each_item_on_its_own(factor):
    items = 20_000
    emitted = rows_of(pyecho.EchoLoader(np.arange(items), factor, batch_size=500))
    extra = np.bincount(emitted, minlength=items) - int(factor)
    assert set(extra.tolist()) == {0, 1}
    fraction = factor % 1
    deviation = (fraction * (1 - fraction) / items) ** 0.5
    assert abs(extra.mean() - fraction) < 5 * deviation
    # Neighbours share nothing: as many pairs of lucky items as independent draws give.
    pairs = (extra[1:] * extra[:-1]).mean()
    assert abs(pairs - fraction**2) < 0.02


@pytest.mark.parametrize("capacity", [2, 10, 100])
def test_shuffling_draws_uniformly_among_the_resident_uses(capacity):
    """The first use drawn from a full pool is any of its items, equally often."""
    draws = 4000
    first = [
        next(
            iter(
                loader_of(
                    np.arange(capacity),
                    {"factor": 3, "capacity": capacity, "batch_size": 1, "seed": seed, "epoch": 0},
                    threads=1,
                )
            )
        ).item()
        for seed in range(draws // 10)
    ]
    counts = np.bincount(first, minlength=capacity)
    expected = len(first) / capacity
    chi_square = ((counts - expected) ** 2 / expected).sum()
    degrees = capacity - 1
    assert chi_square < degrees + 6 * (2 * degrees) ** 0.5 + 6
