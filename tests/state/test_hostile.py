"""Any state, changed at random by hypothesis, is refused or gives a stream.

As many as the profile says: some in CI, 5,000 of each kind at night. What is known to be wrong, and
what may look so, is at the end.
"""

import copy
import itertools
import pickle
import resource
import sys
import tracemalloc
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from interrupts import ended_by_alarm
from resuming import Stateful
from state_kinds import KINDS, is_small, kind_of

import pyecho
from pyecho.state.loaded import digest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:the source .* (yielded nothing|had no length)"),
]
OWN_BYTES = 2**19
OWN_CALLS = 10_000
MOST_RESIDENT = 2**16  # KiB
HANGS_SECONDS = 120  # what is planned is bounded by tests/cpp/replay_test.cpp


class Called(Exception):
    """Something of an object was called that a state holds."""


def refuse(*args, **kwargs):
    raise Called


SPECIAL = (
    "iter len eq ne hash index bool getitem contains lt le gt ge int float array call repr str "
    "format next add radd getattribute reduce"
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


def doubled(times):
    nest = [1]
    for _ in range(times):
        nest = [nest, nest]
    return nest


VALUES = [
    *(None, True, -1, 0, 1, 2, 7, 2**31, 2**32 - 1, 2**40, 2**62, 2**63, 2**64, 2**10_000),
    *(0.5, float("nan"), "", "pyecho", b"x", [], [[]], {}, {"position": None}, [1, 2]),
    *([[1, 11]], [[2**62, 1]], [[2**60, 3]], [[2**20, 0]] * 20, [[2**62, 0]], doubled(60)),
    *(np.zeros(3), np.zeros((2, 2), np.uint8), np.arange(5), np.array(None), np.zeros((0, 10**9))),
    *(np.broadcast_to(np.int64(1), (10**13,)), np.broadcast_to(np.uint8(0), (10**8, 10**8))),
    *(hostile(object), hostile(int, 3), hostile(str, "pyecho"), hostile(float, 2.0)),
    *(hostile(list, [1, 2]), hostile(dict, {"a": 1}), hostile(tuple, (1, 2)), hostile(bytes, b"x")),
    *(hostile(np.int64, 3), hostile(np.float64, 3.0), hostile(np.str_, "pyecho")),
    *(np.arange(3).view(type(hostile(np.ndarray, 1))), hostile(np.ndarray, ())),
]
WAYS = ("replace", "replace", "replace", "add", "flip", "swap", "remove", "rename", "cut", "cast")
CHANGES = st.lists(
    st.tuples(st.sampled_from(WAYS), st.integers(0, 999), st.integers(0, 999)),
    min_size=1,
    max_size=3,
)


def copied(value):
    """A copy of a state that shares nothing which a change writes to."""
    if type(value) is dict:
        return {key: copied(each) for key, each in value.items()}
    if type(value) is list and len(value) < 1000:
        return list(map(copied, value))
    return value.copy() if is_small(value) else value


def places(value, met):
    """Yield each place in a nest, once: what it is in, and its key there."""
    if type(value) in (dict, list) and id(value) not in met:
        met.add(id(value))
        for key, each in value.items() if type(value) is dict else enumerate(value):
            yield value, key
            yield from places(each, met)


def change(state, way, at, by):
    """Change a state in one place."""
    all_places = list(places(state, set()))
    if not all_places:
        return
    parent, key = all_places[at % len(all_places)]
    old, other = parent[key], all_places[by % len(all_places)]
    bits = old.reshape(-1).view(np.uint8) if is_small(old) and old.flags.writeable else []
    if way == "flip" and len(bits):
        bits[by % len(bits)] ^= 1 << by % 8
    elif way == "add" and type(old) is int:
        parent[key] = old + (-1, 1, 255, -(2**31), 2**33)[by % 5]
    elif way == "cut" and (type(old) in (list, str) or (is_small(old) and old.ndim)):
        parent[key] = old[: by % (len(old) + 1)]
    elif way == "cast" and is_small(old):
        parent[key] = old.astype((np.float32, np.int8, object)[by % 3])
    elif way == "swap":
        parent[key] = other[0][other[1]]
    elif way == "rename" and type(parent) is dict:
        parent[(f"{key}_", Key(key), by)[by % 3]] = parent.pop(key)
    elif way == "remove":
        del parent[key]
    else:
        value = VALUES[by % len(VALUES)]
        parent[key] = copy.deepcopy(value) if type(value) in (list, dict) else value


def load_and_use(kind, state, *, signed):
    """Load a state and take what it gives. Returns True if it was accepted."""
    refusals = pyecho.EchoError if signed else kind.refusals
    try:
        loaded = kind.load(state)
        if not signed:
            assert kind.rest in (None, kind.take(loaded))  # nothing that matters has changed
            return True
        with suppress(Called):  # of items, as of any that a source has
            kind.pass_by(loaded)
        return True
    except refusals:
        return False


def measured(kind, state, *, signed):
    """Do so; return also the calls of this thread, and the most bytes at a time."""
    calls, resident = itertools.count(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.start()
    sys.setprofile(lambda frame, event, _: next(calls))
    try:
        with ended_by_alarm(HANGS_SECONDS):
            accepted = load_and_use(kind, state, signed=signed)
        size = tracemalloc.get_traced_memory()[1]
    finally:
        sys.setprofile(None)
        tracemalloc.stop()
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident
    assert resident < MOST_RESIDENT, "native memory"
    return accepted, next(calls), size


@pytest.mark.filterwarnings("ignore:item .* is another one")  # if the samples were changed
@pytest.mark.parametrize("name", KINDS)
def test_any_state_is_refused_or_gives_a_stream_in_few_calls_and_little_memory(name):
    kind = kind_of(name)
    assert load_and_use(kind, copied(kind.state), signed=False)  # imports what it needs
    _, own_calls, own_size = measured(kind, copied(kind.state), signed=False)
    file_bytes = len(pickle.dumps(kind.state))

    @given(CHANGES, st.booleans())
    def check(changes, signed):
        state = copied(kind.state)
        for each in changes:
            change(state, *each)
        if signed and all(type(name) is str for name in state):
            with suppress(pyecho.CheckpointError, TypeError):
                kind.sign(state)
        accepted, calls, size = measured(kind, state, signed=signed)
        event(f"{'accepted' if accepted else 'refused'}, {'signed' if signed else 'as it is'}")
        assert calls < 2 * own_calls + OWN_CALLS
        assert size < own_size + 10 * file_bytes + OWN_BYTES

    check()


# ---------------------------------------------------------------- what may look wrong, and what is


@pytest.mark.parametrize("state", [None, [], {}, {"format": "pyecho"}, "state", 3])
def test_load_state_dict_refuses_anything_but_a_state(state):
    with pytest.raises(pyecho.CheckpointError):
        pyecho.EchoLoader([1]).load_state_dict(state)
    buffer = pyecho.EchoBuffer(pyecho.Field((), np.int32), batch_size=2)
    with pytest.raises(pyecho.CheckpointError):
        buffer.load_state_dict(state)


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


def test_damage_is_found_in_columns_of_bytes():
    loader = pyecho.EchoLoader(list(range(9)), 2, batch_size=2, shuffle_buffer=4)
    state = copy.deepcopy(state_after_a_batch(loader))
    state["unspent"]["columns"][0][0, 0] ^= 1
    with pytest.raises(pyecho.CheckpointError, match="items of the state are damaged"):
        loader.load_state_dict(state)


@pytest.mark.parametrize("name", ["examples", "examples, small", "unique"])
def test_numbers_and_texts_may_be_arrays_without_axes_as_in_an_npz_file(name):
    def filed(value):
        if isinstance(value, dict):
            return {key: filed(each) for key, each in value.items()}
        return np.asarray(value) if isinstance(value, int | float | str) else value

    kind = kind_of(name)
    assert kind.take(kind.load(filed(kind.state))) == kind.rest
    with pytest.raises(pyecho.CheckpointError):
        kind.load(filed(kind.state | {"epoch": 0.5}))


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


@pytest.mark.parametrize(
    "forged",
    [
        {"pyecho": 3},
        {"pyecho": "Ragged"},
        {"pyecho": "Padded", "parts": [1, 2, 3]},
        {"pyecho": "dict", "parts": [1]},
        {"pyecho": "object", "shape": [1], "elements": np.zeros(8, np.uint8)},
        {"pyecho": "i4, (", "shape": [1], "elements": np.zeros(8, np.uint8)},
        {"pyecho": "<U0", "shape": None, "elements": np.zeros(8, np.uint8)},
        {"pyecho": "<i4", "shape": [3], "elements": np.zeros(8, np.uint8)},
        {"pyecho": "<i4", "shape": [0, 2**62], "elements": np.zeros(0, np.uint8)},
        {"pyecho": "<i4", "shape": [1] * 99, "elements": np.zeros(4, np.uint8)},
        {"pyecho": "<i4", "shape": None, "elements": np.zeros(8, np.uint8)},
        {"pyecho": "<i4", "shape": [2], "elements": "text"},
    ],
)
def test_forged_items_that_travel_by_reference_are_refused(forged):
    loader = pyecho.EchoLoader(["a", "b"], 2)
    state = state_after_a_batch(loader)
    [column] = state["unspent"]["columns"]
    column[:] = [[forged] for _ in column]
    state["digest"] = digest(state)
    with pytest.raises(pyecho.CheckpointError, match="needs"):
        pyecho.EchoLoader(["a", "b"], 2).load_state_dict(state)


def test_keys_of_forged_items_are_never_called():
    class Key:
        armed = False

        def __hash__(self):
            assert not Key.armed
            return hash("pyecho")

    loader = pyecho.EchoLoader(["a", "b"], 2)
    state = state_after_a_batch(loader)
    [column] = state["unspent"]["columns"]
    column[:] = [[{Key(): 1}] for _ in column]
    state["digest"] = digest(state)
    Key.armed = True
    pyecho.EchoLoader(["a", "b"], 2).load_state_dict(state)


def test_memory_that_is_read_again_and_again_is_refused():
    data = bytes(1 << 22)
    with pytest.raises(pyecho.CheckpointError, match="repeats"):
        digest({"x": [np.frombuffer(data, np.uint8) for _ in range(4000)]})
