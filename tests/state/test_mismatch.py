"""A state for other options, or another source, is refused with the difference."""

import numpy as np
import pytest
from resuming import Consumer, Stateful, example, loader_of

import pyecho


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("factor", 3), ("batch_size", 5), ("batch_size", None), ("shuffle_buffer", 7)),
        *(("seed", 1), ("drop_last", True), ("unique_in_batch", True), ("epochs", 2)),
        *(("steps_per_epoch", 3), ("unbatch", True)),
    ],
)
def test_message_names_the_option_that_differs(option, value):
    options = {"factor": 2, "batch_size": 4, "shuffle_buffer": 20}
    state = pyecho.EchoLoader([1], **options).state_dict()
    with pytest.raises(pyecho.CheckpointError, match=f"{option}="):
        pyecho.EchoLoader([1], **options | {option: value}).load_state_dict(state)


@pytest.mark.parametrize(
    ("option", "other"),
    [
        ("factor", pyecho.Adaptive(4, 2, max_age=9)),
        ("min_uses", pyecho.Adaptive(3, 1, max_age=9)),
        ("max_age", pyecho.Adaptive(3, 2)),
    ],
)
def test_message_names_what_differs_in_an_adaptive_factor(option, other):
    state = pyecho.EchoLoader([1], pyecho.Adaptive(3, 2, max_age=9), batch_size=1).state_dict()
    with pytest.raises(pyecho.CheckpointError, match=f"{option}="):
        pyecho.EchoLoader([1], other, batch_size=1).load_state_dict(state)


def test_sources_unlike_that_of_the_state_are_refused_at_the_first_batch():
    consumer = Consumer(loader_of("list", 20, factor=2, batch_size=4))
    consumer.take(2)
    state, small = consumer.loader.state_dict(), consumer.loader.state_dict(payload=False)
    with pytest.raises(pyecho.CheckpointError, match="has 19 items, and had 20"):
        consumer.moved_to(loader_of("list", 19, factor=2, batch_size=4)).next()
    fewer = pyecho.EchoLoader(map(example, range(9)), 2, batch_size=4, with_info=True)
    for each in (state, small):
        fewer = pyecho.EchoLoader(map(example, range(9)), 2, batch_size=4, with_info=True)
        fewer.load_state_dict(each)
        with pytest.raises(pyecho.CheckpointError, match="ended after 9 items"):
            Consumer(fewer).next()
    others = pyecho.EchoLoader([np.zeros(3)] * 20, 2, batch_size=4)
    others.load_state_dict(state)
    with pytest.raises(pyecho.CheckpointError, match=r"float64 \(3,\)"):
        next(iter(others))


def test_states_of_sources_are_not_mixed_up():
    options = {"factor": 2, "batch_size": 4, "with_info": True}
    stateful = Consumer(pyecho.EchoLoader(Stateful(20), **options))
    stateful.take(2)
    state = stateful.loader.state_dict()
    plain = pyecho.EchoLoader(map(example, range(20)), **options)
    plain.load_state_dict(state)
    with pytest.raises(pyecho.CheckpointError, match="has no load_state_dict"):
        next(iter(plain))
    with pytest.raises(pyecho.EchoError, match="use state_dict\\(payload=True\\)"):
        stateful.loader.state_dict(payload=False)
