"""A state that was damaged, or means harm, is refused, or gives a right stream."""

import copy
import operator
import os
import random
from contextlib import suppress
from functools import partial, reduce

import numpy as np
import pytest
from resuming import Consumer, Stateful, example, loader_of, noisy

import pyecho
from pyecho.state.walk import digest

pytestmark = pytest.mark.slow

MUTATIONS = 10_000 if os.environ.get("PYECHO_STRESS", "") not in ("", "0") else 300

CONFIGURATIONS = {
    "examples": {"factor": 2.5, "batch_size": 3},
    "batches": {"factor": 3, "shuffle_buffer": 5},
    "augmented": {"factor": 2, "batch_size": 4, "augment": noisy},
    "unique": {"factor": 3, "batch_size": 4, "unique_in_batch": True, "epochs": 2},
    "endless": {"factor": 2, "batch_size": 4, "steps_per_epoch": 5},
    "small": {"factor": 2.5, "batch_size": 3, "payload": False},
}


def loader_and_rest(name):
    """A state in the middle of an epoch, how to make a loader for it, and what comes next."""
    options = CONFIGURATIONS[name].copy()
    payload = options.pop("payload", True)
    consumer = Consumer(loader_of("list", 11, **options))
    consumer.take(3)
    state = consumer.loader.state_dict(payload=payload)
    rest = consumer.take(9)
    consumer.loader.close()
    return state, lambda: loader_of("list", 11, **options), rest


class Poison:
    """Fails the test if anything of it is called."""

    def __reduce__(self, *args, **kwargs):
        raise AssertionError

    __call__ = __len__ = __reduce__


VALUES = [
    *(None, True, -1, 0, 1, 2, 7, 2**31, 2**32 - 1, 2**40, 2**63, 2**64, 2**200),
    *(0.5, float("nan"), "", "pyecho", b"x", [], [[]], {}, {"position": None}, [1, 2], [[1, 11]]),
    *(np.zeros(3), np.zeros((2, 2), np.uint8), np.arange(5), np.array(None), Poison()),
]


def places(value, path=()):
    """Yield the paths of everything in a nest."""
    yield path
    children = ()
    if isinstance(value, dict):
        children = value.items()
    elif isinstance(value, list):
        children = enumerate(value)
    for key, child in children:
        yield from places(child, (*path, key))


def mutated(state, draw):
    """A copy of a state with something changed in one place."""
    state = copy.deepcopy(state)
    path = draw.choice([path for path in places(state) if path])
    *parents, key = path
    parent = state
    for step in parents:
        parent = parent[step]
    old, way = parent[key], draw.random()
    if isinstance(old, np.ndarray) and old.size and way < 0.6:
        flat = old.reshape(-1).view(np.uint8)
        flat[draw.randrange(flat.size)] ^= 1 << draw.randrange(8)
        if way < 0.2:
            parent[key] = old[:-1]
        elif way < 0.3:
            parent[key] = old.astype(np.float32)
    elif way < 0.2:
        del parent[key]
    elif way < 0.3 and isinstance(parent, dict):
        parent[f"{key}_"] = old
    elif isinstance(old, int) and way < 0.6:
        parent[key] = old + draw.choice([-1, 1, 255, -(2**31), 2**33])
    else:
        parent[key] = draw.choice(VALUES)
    return state


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_damage_is_found_before_anything_is_used(name):
    state, make, rest = loader_and_rest(name)
    draw, loader, refused = random.Random(name), make(), 0
    for _ in range(MUTATIONS // len(CONFIGURATIONS)):
        try:
            loader.load_state_dict(mutated(state, draw))
        except pyecho.CheckpointError:
            refused += 1
            continue
        assert Consumer(loader).take(9) == rest  # nothing that matters has changed
        loader.close()
        loader = make()
    assert refused > MUTATIONS // len(CONFIGURATIONS) * 0.9
    loader.close()


@pytest.mark.filterwarnings("ignore:the source .* (yielded nothing|had no length)")
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_forged_state_does_no_harm(name):
    state, make, _ = loader_and_rest(name)
    draw = random.Random(name)
    for _ in range(MUTATIONS // len(CONFIGURATIONS)):
        forged = mutated(state, draw)
        loader = make()
        try:
            forged["digest"] = digest(forged)
            loader.load_state_dict(forged)
            Consumer(loader).take(20)
        except (pyecho.CheckpointError, pyecho.EchoError):
            pass
        loader.close()


@pytest.mark.parametrize("state", [None, [], {}, {"format": "pyecho"}, "state", 3, Poison()])
def test_load_state_dict_refuses_anything_but_a_state(state):
    with pytest.raises(pyecho.CheckpointError):
        pyecho.EchoLoader([1]).load_state_dict(state)
    buffer = pyecho.EchoBuffer(pyecho.Field((), np.int32), batch_size=2)
    with pytest.raises(pyecho.CheckpointError):
        buffer.load_state_dict(state)


def test_nest_without_end_is_refused():
    state = pyecho.EchoLoader([1]).state_dict()
    state["position"] = state
    with pytest.raises(pyecho.CheckpointError):
        pyecho.EchoLoader([1]).load_state_dict(state)


def state_after_a_batch(loader):
    batches = iter(loader)
    next(batches)
    return loader.state_dict()


class ByIdentity:
    """A key whose repr is another one in every process."""


def test_keys_with_an_address_in_their_repr_do_no_damage():
    source = [{ByIdentity(): item, ByIdentity(): -item, 3: "x", ("y", 1): 0} for item in range(9)]
    loader = pyecho.EchoLoader(source, 2, shuffle_buffer=4)
    state = state_after_a_batch(loader)
    for _ in range(10):
        again = pyecho.EchoLoader(source, 2, shuffle_buffer=4)
        again.load_state_dict(copy.deepcopy(state))
        assert len(list(again)) == 17


def test_damage_is_found_in_items_that_have_columns_of_their_own():
    source = [{"columns": [np.full(4, item)]} for item in range(9)]
    loader = pyecho.EchoLoader(source, 2, shuffle_buffer=4)
    state = copy.deepcopy(state_after_a_batch(loader))
    state["unspent"]["columns"][0][0]["columns"][0][2] = 99
    with pytest.raises(pyecho.CheckpointError, match="damaged"):
        loader.load_state_dict(state)


def test_there_is_no_state_with_something_that_contains_itself():
    endless = [1]
    endless.append(endless)

    class Endless(Stateful):
        def state_dict(self):
            return endless

    loader = pyecho.EchoLoader(Endless(5), 2)
    batches = iter(loader)
    next(batches)
    with pytest.raises(pyecho.EchoError, match="contains itself"):
        loader.state_dict()
    assert len(list(batches)) == 9


@pytest.mark.parametrize("name", ["examples", "small", "unique"])
def test_numbers_and_texts_may_be_arrays_without_axes_as_in_an_npz_file(name):
    def filed(value):
        if isinstance(value, dict):
            return {key: filed(each) for key, each in value.items()}
        return np.asarray(value) if isinstance(value, int | float | str) else value

    state, make, rest = loader_and_rest(name)
    loader = make()
    loader.load_state_dict(filed(state))
    assert Consumer(loader).take(9) == rest
    with pytest.raises(pyecho.CheckpointError):
        make().load_state_dict(filed(state | {"epoch": 0.5}))


@pytest.mark.parametrize("held", [[1, 2], [[]], [[1, 2, 3]], [None], ["ab"]])
def test_forged_items_that_were_read_ahead_are_refused(held):
    def loader():
        return pyecho.EchoLoader(Stateful(20), 2, batch_size=4)

    state = state_after_a_batch(loader())
    state["held"] = held
    state["digest"] = digest(state)
    forged = loader()
    forged.load_state_dict(state)
    with pytest.raises(pyecho.CheckpointError, match="read ahead"):
        next(iter(forged))


@pytest.mark.parametrize("uses", [1, 39, 41, 2**31, 2**40, 2**62, None])
@pytest.mark.parametrize("payload", [True, False])
@pytest.mark.parametrize(
    "options", [{}, {"pad_last": True}, {"shards": 2}, {"shards": 1, "steps_per_epoch": 5}], ids=str
)
def test_forged_uses_take_no_memory(uses, payload, options):
    def loader():
        return pyecho.EchoLoader(np.arange(20), 2, batch_size=4, **options)

    state = copy.deepcopy(state_after_a_batch(loader()))
    if state["position"]["uses"] == uses:
        return
    state["position"]["uses"] = uses
    if not payload:
        state |= {"unspent": None}
    state["digest"] = digest(state)
    forged = loader()
    with pytest.raises(pyecho.CheckpointError, match=r"uses of|in its uses"):
        forged.load_state_dict(state)
        next(iter(forged))


@pytest.mark.parametrize("payload", [True, False])
@pytest.mark.parametrize("passes", [[[2**62, 1]], [[2**60, 3]], [[2**40, 20]], [[2**62, 0]]])
def test_forged_passes_are_not_replayed_without_end(payload, passes):
    def loader():
        return pyecho.EchoLoader(np.arange(20), 2, batch_size=4, steps_per_epoch=7)

    batches = iter(first := loader())
    next(batches)
    state = copy.deepcopy(first.state_dict(payload=payload))
    state["position"] |= {"passes": passes, "iterations": 2**61, "items": 20}
    state["digest"] = digest(state)
    forged = loader()
    with pytest.raises(pyecho.CheckpointError):
        forged.load_state_dict(state)
        next(iter(forged))


def refuse(*args, **kwargs):
    raise AssertionError("called")


SPECIAL = (
    "iter len eq ne hash index bool getitem contains lt le gt ge int float array call repr str "
    "format next add radd getattribute"
)


def hostile(base, *args):
    """An object of a class derived from `base`, everything of which raises."""
    methods = {f"__{name}__": refuse for name in SPECIAL.split()}
    methods |= {name: property(refuse) for name in ("shape", "dtype", "ndim", "keys", "items")}
    return type("Hostile", (base,), methods)(*args)


class Key:
    """A key that collides with a name of a state, and must not be compared with it."""

    __eq__ = refuse

    def __init__(self, name):
        self.name = name

    def __hash__(self):
        return hash(self.name)


HOSTILE = [
    *(hostile(object), hostile(int, 3), hostile(str, "pyecho"), hostile(float, 2.0)),
    *(hostile(list, [1, 2]), hostile(dict, {"a": 1}), hostile(tuple, (1, 2)), hostile(bytes, b"x")),
    *(hostile(np.int64, 3), hostile(np.float64, 3.0), hostile(np.str_, "pyecho")),
    *(np.arange(3).view(type(hostile(np.ndarray, 1))), hostile(np.ndarray, ())),
]


def states_and_loaders():
    for name in CONFIGURATIONS:
        yield loader_and_rest(name)[:2]
    options = {"factor": 2, "batch_size": 4}
    shards = pyecho.EchoLoader(np.arange(12), shards=2, **options)
    for loader in (pyecho.EchoLoader(Stateful(20), **options), shards):
        yield loader.state_dict(), partial(copy.copy, loader)
        yield state_after_a_batch(loader), partial(copy.copy, loader)
    yield shards.state_dict(payload=False), partial(copy.copy, shards)

    def buffer():
        return pyecho.EchoBuffer(pyecho.spec_of(example(0)), batch_size=2, shuffle_buffer=3)

    first = buffer()
    for item in range(3):
        first.put(example(item))
    yield state_after_a_batch(first), buffer


def plain_copy(value):
    if type(value) is dict:
        return {key: plain_copy(each) for key, each in value.items()}
    return list(map(plain_copy, value)) if type(value) is list else value


def test_load_state_dict_calls_nothing_of_what_is_in_a_state():
    for state, make in states_and_loaders():
        target = make()
        for path in list(places(state))[1:]:
            for foe in HOSTILE:
                forged = plain_copy(state)
                *parents, last = path
                parent = reduce(operator.getitem, parents, forged)
                parent[last] = foe
                load_signed(target, forged)
            if isinstance(last, str):
                forged = plain_copy(state)
                parent = reduce(operator.getitem, parents, forged)
                del parent[last]
                parent[Key(last)] = 1
                load_signed(target, forged)
        target.close()


def load_signed(target, forged):
    """Load a state, with a right digest where it can have one."""
    if all(type(name) is str for name in forged):
        forged["digest"] = digest(forged)
    with suppress(pyecho.CheckpointError):
        target.load_state_dict(forged)
