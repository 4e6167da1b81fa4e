"""Ways of frameworks to go on: `skip_first_batches`, and `set_epoch` after a state."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from resuming import CUT, END, Consumer, Scenario, loader_of

import pyecho

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:the source .* yielded nothing"),
    pytest.mark.filterwarnings("ignore:the .* items of the source, used"),
]


SIZED = ("list", "arrays", "indexed", "sized", "cut list")


@given(seed=st.integers(0, 2**32))
def test_skip_first_batches_leaves_out_the_first_of_an_epoch(seed):
    scenario, draw = Scenario(seed), random.Random(seed)
    scenario.form = draw.choice([each for each in SIZED if (each in CUT) == (scenario.form in CUT)])
    whole = Consumer(scenario.loader(draw)).take_all(scenario.iterations)
    ends = [-1, *(place for place, each in enumerate(whole) if each == END)]
    before = draw.randrange(scenario.iterations)
    count = draw.randint(0, ends[before + 1] - ends[before] - 1)
    consumer = Consumer(scenario.loader(draw))
    assert consumer.take_all(before) == whole[: ends[before] + 1]
    consumer.loader.skip_first_batches(count)
    rest = consumer.take_all(scenario.iterations - before)
    assert rest == whole[ends[before] + 1 + count :]


def test_skip_first_batches_refuses_what_cannot_be_skipped():
    loader = loader_of("indexed", 100, factor=2, batch_size=10)
    with pytest.raises(pyecho.ConfigError, match="at most 20"):
        loader.skip_first_batches(21)
    batches = iter(loader)
    next(batches)
    with pytest.raises(pyecho.EchoError, match="between two iterations"):
        loader.skip_first_batches(1)
    for form, factor in [("stateful", 2), ("iterated", 2), ("list", pyecho.Adaptive(2))]:
        with pytest.raises(pyecho.EchoError, match="use state_dict"):
            loader_of(form, 100, factor=factor, batch_size=10).skip_first_batches(1)


@pytest.mark.parametrize("saved_after", [0, 1])
def test_skip_first_batches_skips_in_the_epoch_that_set_epoch_tells(saved_after):
    def make():
        return pyecho.EchoLoader(np.arange(40), 2, batch_size=10)

    first = make()
    whole = [[batch.tolist() for batch in first] for _ in range(3)]
    loader = make()
    for _ in range(saved_after):
        assert [batch.tolist() for batch in loader] == whole[0]
    loader.set_epoch(2)
    loader.skip_first_batches(1)
    assert [batch.tolist() for batch in loader] == whole[2][1:]


@pytest.mark.parametrize("options", [{"epochs": 3}, {"steps_per_epoch": 7}, {}])
@pytest.mark.parametrize("augment", [None, lambda batch, rng: batch])
def test_set_epoch_behind_the_last_batch_of_a_state_goes_on_with_the_next_epoch(options, augment):
    """A framework that saves after the last step counts that epoch as done."""

    def make():
        return pyecho.EchoLoader(np.arange(30), 2, batch_size=10, augment=augment, **options)

    loader = make()
    batches = iter(loader)
    for _ in range(len(loader)):
        next(batches)
    state = loader.state_dict()
    resumed = make()
    resumed.load_state_dict(state)
    resumed.set_epoch(1)
    assert [b.tolist() for b in resumed] == [b.tolist() for b in loader]
