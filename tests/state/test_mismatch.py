"""A state for other options, or another source, is refused with the difference."""

import copy

import numpy as np
import pytest
import torch
from resuming import Consumer, Stateful, example, loader_of

import pyecho
import pyecho.torch
from pyecho import ops
from pyecho.state.loaded import digest

FIELD = pyecho.Field((None, 3), "uint8", max_bytes=99, pad=0)
SAME = [
    ({"ops": [ops.RandomCrop((2, 2))]}, {"ops": (ops.RandomCrop([2, np.int64(2)]),)}),
    ({"ops": [ops.RandomCrop((2,))]}, {"ops": [ops.RandomCrop(np.array([2]), axes=None)]}),
    ({"ops": [ops.RandomFlip(0, 0.5)]}, {"ops": [ops.RandomFlip(np.int8(0), np.float64(0.5))]}),
    ({"ops": [ops.RandomFlip(0, 1)]}, {"ops": [ops.RandomFlip(0, np.True_ + 0.0)]}),
    ({"ops": [ops.Cast("float32")]}, {"ops": [ops.Cast(np.float32)]}),
    ({"ops": [ops.Cast(torch.bfloat16)]}, {"ops": [ops.Cast("bfloat16")]}),
    (
        {"ops": [ops.Normalize([0, 0.5], (1, 2))]},
        {"ops": [ops.Normalize(torch.tensor([0, 0.5]), np.array([1, 2], "f4"))]},
    ),
    ({"ops": {"x": [ops.ToCHW()]}}, {"ops": {("x",): (ops.ToCHW(),)}}),
    ({"ops": []}, {}),
    ({"fields": {"x": FIELD, "y": FIELD}}, {"fields": {"y": FIELD, "x": FIELD}}),
    ({"fields": {1: FIELD}}, {"fields": {"1": FIELD}}),
    (
        {"fields": FIELD},
        {"fields": pyecho.Field([None, np.int32(3)], np.uint8, np.int64(99), np.float32(0))},
    ),
    ({"factor": 2}, {"factor": np.float32(2)}),
    ({"seed": 1}, {"seed": np.uint64(1)}),
]


@pytest.mark.parametrize(("given", "other"), SAME)
@pytest.mark.parametrize("turned", [False, True])
def test_options_that_mean_the_same_are_the_same(given, other, turned):
    given, other = (other, given) if turned else (given, other)
    state = pyecho.torch.EchoLoader([1], batch_size=4, **given).state_dict()
    loader = pyecho.torch.EchoLoader([1], batch_size=4, **other)
    loader.load_state_dict(state)
    assert loader.state_dict()["options"] == state["options"]


PLAIN = {"factor": 2, "shuffle_buffer": 20}
ADAPTIVE = {"factor": pyecho.Adaptive(3, 2, max_age=9)}
BOTH = {"ops": {"x": [ops.RandomFlip(0)], "y": [ops.RandomFlip(0)]}}


@pytest.mark.parametrize(
    ("name", "given", "other"),
    [
        *(("factor", PLAIN, {"factor": 3}), ("shuffle_buffer", PLAIN, {"shuffle_buffer": 7})),
        *(("batch_size", PLAIN, {"batch_size": 5}), ("batch_size", PLAIN, {"batch_size": None})),
        *(("seed", PLAIN, {"seed": 1}), ("drop_last", PLAIN, {"drop_last": True})),
        *(("epochs", PLAIN, {"epochs": 2}), ("steps_per_epoch", PLAIN, {"steps_per_epoch": 3})),
        *(("unbatch", PLAIN, {"unbatch": True}), ("unbatch", PLAIN, {"unbatch": "lists"})),
        ("unique_in_batch", PLAIN, {"unique_in_batch": True}),
        ("factor", ADAPTIVE, {"factor": pyecho.Adaptive(4, 2, max_age=9)}),
        ("min_uses", ADAPTIVE, {"factor": pyecho.Adaptive(3, 1, max_age=9)}),
        ("max_age", ADAPTIVE, {"factor": pyecho.Adaptive(3, 2)}),
        *(("sampler", {"sampler": [0]}, {"sampler": None}), ("sampler", {}, {"sampler": [0]})),
        ("shuffle", {"shuffle": True}, {"shuffle": False}),
        ("ops", {"ops": [ops.RandomFlip(0)]}, {"ops": [ops.RandomFlip(1)]}),
        ("ops", BOTH, {"ops": dict(reversed(BOTH["ops"].items()))}),  # other draws
        ("fields", {"fields": FIELD}, {"fields": pyecho.Field((None, 3), "uint8", 99, pad=1)}),
    ],
)
def test_message_names_the_option_that_differs(name, given, other):
    given = {"batch_size": 4} | given
    state = pyecho.EchoLoader([1], **given).state_dict()
    with pytest.raises(pyecho.CheckpointError, match=f"{name}="):
        pyecho.EchoLoader([1], **given | other).load_state_dict(state)


def test_sources_unlike_that_of_the_state_are_refused_at_the_first_batch():
    consumer = Consumer(loader_of("list", 20, factor=2, batch_size=4))
    consumer.take(2)
    state, small = consumer.loader.state_dict(), consumer.loader.state_dict(payload=False)
    for payload in (True, False):
        other = loader_of("list", 19, factor=2, batch_size=4)
        other.load_state_dict(state if payload else small)
        with pytest.raises(pyecho.CheckpointError, match="has 19 items, and had 20"):
            next(iter(other))
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
    again = pyecho.EchoLoader(Stateful(20), **options)
    again.load_state_dict(state)
    with pytest.raises(pyecho.EchoError, match="use state_dict\\(payload=True\\)"):
        again.state_dict(payload=False)


def test_data_loader_with_another_way_to_shuffle_is_refused():
    def loader_with(**options):
        rows = torch.utils.data.DataLoader(torch.arange(40), batch_size=4, **options)
        return pyecho.torch.EchoLoader(rows, 2)

    ways = [{}, {"shuffle": True}, {"shuffle": True, "generator": torch.Generator()}]
    for saved in ways:
        for loaded in ways:
            given, other = loader_with(**saved), loader_with(**loaded)
            batches = iter(given)
            next(batches)
            other.load_state_dict(given.state_dict(payload=False))
            if loaded is saved:
                assert torch.equal(next(iter(other)), next(batches))
            else:
                with pytest.raises(pyecho.CheckpointError, match="of a DataLoader whose order"):
                    next(iter(other))


@pytest.mark.parametrize("lists", [[], [False], [True, True], [1], 3, {}])
def test_lists_that_were_columns_are_those_of_the_source(lists):
    def loader():
        batches = [{"x": np.arange(3), "y": [np.arange(n) for n in (5, 2, 7)]}] * 3
        return pyecho.EchoLoader(batches, 2, batch_size=2, unbatch=True, threads=0)

    begun, forged = loader(), loader()
    next(iter(begun))
    state = copy.deepcopy(begun.state_dict())
    assert state["lists"] == [True]
    state["lists"] = lists
    state["digest"] = digest(state)
    with pytest.raises(pyecho.CheckpointError):
        forged.load_state_dict(state)
        next(iter(forged))
