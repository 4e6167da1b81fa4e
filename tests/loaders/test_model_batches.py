"""Batch echoing agrees with the reference model, use by use."""

import reference_model as model
from hypothesis import given
from hypothesis import strategies as st

import pyecho
from pyecho import _core

factors = st.one_of(st.integers(1, 6), st.floats(1, 5, allow_nan=False))
configurations = st.fixed_dictionaries(
    {
        "factor": factors,
        "capacity": st.one_of(st.integers(0, 12), st.integers(0, 200)),
        "seed": st.integers(0, 2**64 - 1),
        "epoch": st.integers(0, 2**63),
    }
)


def expected_uses(items, configuration):
    capacity = max(1, configuration["capacity"])
    return model.uses(items, **dict(configuration, capacity=capacity))


def loader_of(source, configuration, **more):
    loader = pyecho.EchoLoader(
        source,
        configuration["factor"],
        shuffle_buffer=configuration["capacity"],
        seed=configuration["seed"],
        **more,
    )
    loader.set_epoch(configuration["epoch"])
    return loader


@given(items=st.integers(1, 60), configuration=configurations, prefetch=st.integers(1, 5))
def test_uses_are_those_of_the_model_and_each_is_the_same_object(items, configuration, prefetch):
    source = [object() for _ in range(items)]
    emitted = list(loader_of(source, configuration, prefetch=prefetch))
    expected = [source[use.item] for use in expected_uses(items, configuration)]
    assert len(emitted) == len(expected)
    assert all(one is other for one, other in zip(emitted, expected, strict=True))


@given(items=st.integers(1, 60), configuration=configurations)
def test_info_says_which_item_and_which_use(items, configuration):
    emitted = list(loader_of(range(items), configuration, with_info=True))
    expected = expected_uses(items, configuration)
    assert [item for item, _ in emitted] == [use.item for use in expected]
    assert [info.source_index.tolist() for _, info in emitted] == [[use.item] for use in expected]
    assert [info.use.tolist() for _, info in emitted] == [[use.use] for use in expected]
    assert {(info.source_index.dtype.name, info.use.dtype.name) for _, info in emitted} == {
        ("int64", "int32")
    }


@given(items=st.integers(1, 60), configuration=configurations)
def test_length_is_the_number_of_uses(items, configuration):
    loader = loader_of(range(items), configuration)
    assert len(loader) == len(expected_uses(items, configuration))


@given(
    items=st.integers(0, 200),
    factor=factors,
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 2**64 - 1),
)
def test_the_uses_of_the_first_items_add_up(items, factor, seed, epoch):
    expected = sum(model.uses_of(item, factor, seed, epoch) for item in range(items))
    assert _core.uses_of_first(items, factor, seed, epoch) == expected


@given(items=st.integers(1, 40), factor=factors)
def test_without_shuffling_repeats_follow_each_other(items, factor):
    emitted = list(pyecho.EchoLoader(range(items), factor, seed=3))
    expected = [item for item in range(items) for _ in range(model.uses_of(item, factor, 3))]
    assert emitted == expected
