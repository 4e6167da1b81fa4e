"""Loaders and buffers agree with the reference model, use by use, whatever makes the batches."""

from itertools import chain, islice, repeat

import numpy as np
import pytest
import reference_model as model
import resuming
from delays import dawdling
from drivers import length_of
from hypothesis import given, settings
from hypothesis import strategies as st
from segments import segments_of

import pyecho
from pyecho import _core

many = settings(max_examples=max(600, settings.default.max_examples))
factors = st.one_of(
    st.integers(1, 6), st.floats(1, 5, allow_nan=False), st.sampled_from([1.5, 2.25, 3.999])
)
seeds = st.one_of(st.integers(0, 5), st.integers(0, 2**64 - 1))


@st.composite
def configurations(draw, *, batches=True):
    """Arguments of `model.iterations`; with a batch size or, if not `batches`, perhaps without."""
    batch_size = draw(st.integers(1, 9) if batches else st.one_of(st.none(), st.integers(1, 9)))
    unique = batch_size is not None and draw(st.booleans())
    least = batch_size if unique else 0
    return {
        "factor": draw(factors),
        "capacity": draw(st.one_of(st.integers(least, least + 12), st.integers(least, 200))),
        "batch_size": batch_size,
        "unique_in_batch": unique,
        "drop_last": batch_size is not None and draw(st.booleans()),
        "seed": draw(seeds),
    }


# ---------------------------------------------------------------- sources


CUT, KNOWN = resuming.CUT, resuming.KNOWN
ONE_SHOT = ("late", "one shot")
FORMS = ("list", "arrays", "indexed", "sized", "iterated", *ONE_SHOT, "cut list", "cut")


def source_of(form, items):
    if form == "late":
        return dawdling(resuming.examples(items), seed=items, most_seconds=0.0003)
    return resuming.SOURCES[form](items)


def expected_iterations(items, arguments, form, first, count):
    """The first iterations of a loader: how its passes flow into each other."""
    made, number = [], first
    epochs, steps = arguments["epochs"], arguments["steps_per_epoch"]
    plan = {name: arguments[name] for name in configurations_keys}
    plan |= {"batch_size": arguments["batch_size"] or 1, "known": form in KNOWN, "steps": steps}
    while len(made) < count and not (made and form in ONE_SHOT):
        passes = [items] * max(1, (epochs or 0) - number)
        if form in ONE_SHOT:
            passes = [items]
        elif steps is not None:
            passes = repeat(items)
        flow = islice(model.iterations(passes, epoch=number, **plan), count - len(made))
        made += flow
        number = first + len(made)
    return made


configurations_keys = ["factor", "capacity", "unique_in_batch", "drop_last", "seed", "segment_uses"]


def uses_in(batch, info, *, whole):
    """The uses in what was emitted, whose content must tell the same as its info."""
    items, uses = info.source_index.tolist(), info.use.tolist()
    assert (info.source_index.dtype, info.use.dtype) == (np.int64, np.int32)
    if isinstance(batch, list):  # a collate_fn's
        batch = {name: [each[name] for each in batch] for name in batch[0]}
    if isinstance(batch, tuple):
        batch, numbers = {"row": batch[0]}, np.atleast_1d(batch[1])
        assert np.array_equal(numbers, items)
    if whole:
        batch = {name: [leaf] for name, leaf in batch.items()}
    assert np.array_equal(batch["row"], [[item] * 5 for item in items])
    assert batch.get("name") in (None, [f"item {item}" for item in items])
    return list(map(model.Use, items, uses))


@pytest.mark.filterwarnings("ignore:the .* items of the source, used")
@many
@given(
    items=st.integers(1, 60),
    form=st.sampled_from(FORMS),
    configuration=configurations(batches=False),
    epoch=st.one_of(st.integers(0, 3), st.integers(0, 2**62)),
    epochs=st.one_of(st.none(), st.integers(1, 5)),
    steps=st.one_of(st.none(), st.none(), st.integers(1, 12)),
    count=st.integers(1, 4),
    threads=st.sampled_from([None, 0, 1, 2]),
    prefetch=st.integers(1, 5),
    workers=st.sampled_from([None, None, 0, 1, 3]),
    collate=st.booleans(),
    segment_uses=st.sampled_from([None, None, 1, 30, 100]),
)
def test_loader_emits_what_the_model_says(
    items,
    form,
    configuration,
    epoch,
    epochs,
    steps,
    count,
    threads,
    prefetch,
    workers,
    collate,
    segment_uses,
):
    batches = configuration["batch_size"] is not None
    arguments = configuration | {"epochs": epochs, "steps_per_epoch": steps}
    if not batches and form in CUT:
        form = "list"
    plan = arguments | {"segment_uses": segment_uses}
    expected = expected_iterations(items, plan, form, epoch, count)
    with segments_of(segment_uses):
        loader = pyecho.EchoLoader(
            source_of(form, items),
            shuffle_buffer=arguments.pop("capacity"),
            **arguments,
            unbatch=form in CUT,
            threads=threads,
            prefetch=prefetch,
            augment=None if workers is None else lambda batch, rng: batch,
            augment_workers=workers or 0,
            collate_fn=list if collate and batches and form not in (*CUT, "arrays") else None,
            with_info=True,
        )
    loader.set_epoch(epoch)
    emitted = []
    for _ in expected:
        told = length_of(loader)
        iteration = [uses_in(batch, info, whole=not batches) for batch, info in loader]
        emitted.append(iteration)
        assert told == len(iteration) or told is None or form in ONE_SHOT
    assert emitted == expected
    made = list(chain.from_iterable(expected))
    assert loader.stats().batches == len(made)
    if workers is None or (epochs is None and steps is None):  # else augmentation is ahead
        assert loader.stats().emitted == sum(map(len, made))
    loader.close()


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


@pytest.mark.parametrize("capacity", [2, 10, 100])
def test_draw_takes_any_of_the_pool_equally_often(capacity):
    seeds = 400
    first = [
        next(iter(pyecho.EchoLoader(range(capacity), 3, shuffle_buffer=capacity, seed=seed)))
        for seed in range(seeds)
    ]
    expected = seeds / capacity
    chi_square = ((np.bincount(first, minlength=capacity) - expected) ** 2 / expected).sum()
    assert chi_square < capacity + 6 * (2 * capacity) ** 0.5 + 6
