"""The walk over a state that was loaded: bounded, and it says where something is wrong."""

import copy

import numpy as np
import pytest
from resuming import Stateful

import pyecho
from pyecho.state.loaded import MOST_DEPTH, digest

torch = pytest.importorskip("torch")


class Keeps(Stateful):
    """A source whose state holds whatever it is given."""

    held: object = None

    def state_dict(self):
        return super().state_dict() | {"held": self.held}


def state_with(held):
    """The state of a source, with something in it."""
    state = copy.deepcopy(pyecho.EchoLoader(Keeps(5), 2).state_dict())
    state["source"]["state"]["held"] = held
    return state


def doubled(times):
    nest = [1]
    for _ in range(times):
        nest = [nest, nest]
    return nest


def nested(times):
    nest = [1]
    for _ in range(times):
        nest = {"a": nest}
    return nest


def itself():
    nest = [1]
    nest.append({"again": nest})
    return nest


LONG = "x" * 2**20  # one object
MEMORY = np.zeros(2**22)

ENDLESS = {
    "doubled": doubled(60),
    "doubled in a key": {(1, 2): {"x": tuple(doubled(60))}},
    "deep": nested(MOST_DEPTH),
    "very deep": nested(100_000),
    "itself": itself(),
    "expanded": torch.zeros(1).expand(10**13),
    "expanded twice": torch.zeros(3, 1, 1).expand(3, 10**7, 10**7),
    "strided": np.lib.stride_tricks.as_strided(np.zeros(1), (10**13,), (0,)),
    "broadcast": np.broadcast_to(np.zeros(3), (10**13, 3)),
    "windows": np.lib.stride_tricks.sliding_window_view(np.zeros(10**6), 10**5),
    "views of one storage": [torch.from_numpy(MEMORY)[at:] for at in range(400)],
    "views of one array": [MEMORY[at:] for at in range(400)],
    "meta": torch.empty(3, device="meta"),
    "meta number": torch.empty((), device="meta"),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_load_state_dict_refuses_what_grows_without_end_and_says_where(name):
    place = r"the state\['source'\]\['state'\]\['held'\]"
    with pytest.raises(pyecho.CheckpointError, match=place):
        pyecho.EchoLoader(Keeps(5), 2).load_state_dict(state_with(ENDLESS[name]))


@pytest.mark.parametrize("name", ENDLESS)
def test_state_dict_refuses_what_could_not_be_loaded(name):
    source = Keeps(5)
    source.held = ENDLESS[name]
    with pytest.raises(pyecho.EchoError, match=r"\['held'\]"):
        pyecho.EchoLoader(source, 2).state_dict()


@pytest.mark.parametrize(
    "held",
    [
        doubled(10),
        [{"a": [1, 2]}] * 100_000,
        [torch.zeros(1).expand(1000), np.broadcast_to(np.zeros(1), 1000)],
        [torch.zeros(3).bfloat16(), torch.tensor(3), torch.empty(0, 5), torch.eye(3).to_sparse()],
        2**20_000,
        nested(MOST_DEPTH - 5),
        np.zeros((0, 10**9)),
        [bytes(2**21), np.zeros(2**18), "x" * 2**21, 2 ** (2**22)] * 20_000,
        [{LONG: each} for each in range(20_000)],
    ],
    ids=range(9),
)
def test_state_may_hold_what_repeats_or_is_large(held):
    source = Keeps(5)
    source.held = held
    state = pyecho.EchoLoader(source, 2).state_dict()
    pyecho.EchoLoader(Keeps(5), 2).load_state_dict(state)
    pyecho.EchoLoader(Keeps(5), 2).load_state_dict(copy.deepcopy(state))


def test_items_of_a_state_may_be_one_object():
    item = {"image": np.zeros(4), "more": [1, {"deep": "text"}]}
    loader = pyecho.EchoLoader([item] * 1000, 2, shuffle_buffer=500)
    batches = iter(loader)
    next(batches)
    again = pyecho.EchoLoader([item] * 1000, 2, shuffle_buffer=500)
    again.load_state_dict(loader.state_dict())
    assert len(list(again)) == 1999


def test_digest_is_that_of_a_copy_that_shares_nothing():
    part = [1, {"a": np.arange(3)}]
    assert digest({"x": [part, part]}) == digest({"x": [copy.deepcopy(part), part]})
    assert digest({"x": [[1], [2]]}) != digest({"x": [[1, 2], []]})


def examples_state():
    loader = pyecho.EchoLoader(np.arange(20), 2, batch_size=4, shuffle_buffer=8)
    batches = iter(loader)
    next(batches)
    return loader.state_dict()


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda state: state.pop("links"), r"the state needs a dict with 'links'"),
        (lambda state: state["position"].pop("ended"), r"the state\['position'\] needs .*'ended'"),
        (
            lambda state: state["position"].update(passes=[[1, 2, 3]]),
            r"the state\['position'\]\['passes'\]\[0\] needs a list of length 2",
        ),
        (
            lambda state: state["position"].update(batches=-1),
            r"the state\['position'\]\['batches'\] needs a number of 0 to \d+, and has -1",
        ),
        (
            lambda state: state["unspent"].update(numbers=np.zeros(3)),
            r"the state\['unspent'\]\['numbers'\] needs an array of int64 with 1 axes",
        ),
        (
            lambda state: state["unspent"].update(numbers=np.broadcast_to(np.int64(0), (10**13,))),
            r"the state\['unspent'\]\['numbers'\]",
        ),
        (
            lambda state: state["unspent"].update(
                columns=[np.broadcast_to(np.uint8(0), (10**8, 10**8))]
            ),
            r"the state\['unspent'\]\['columns'\]\[0\] needs an array with memory of its own",
        ),
        (
            lambda state: state["unspent"].update(numbers=np.zeros((3, 2), np.int64)[:, 0]),
            r"the state\['unspent'\]\['numbers'\] needs an array of int64 .*, in C order",
        ),
        (lambda state: state["options"].update({"x" * 10**6: 1}), r"with x{40}=1"),
        (lambda state: state.update(links={str(at): [] for at in range(17)}), "in its links"),
        (lambda state: state.update(epoch=2**200_000), r"the state\['epoch'\] needs"),
        (lambda state: state["options"].update(seed=2**200_000), "seed=a int"),
    ],
)
def test_error_of_a_damaged_state_names_the_place(change, place):
    state = examples_state()
    change(state)
    with pytest.raises(pyecho.CheckpointError, match=place):
        state["digest"] = digest(state)
        pyecho.EchoLoader(np.arange(20), 2, batch_size=4, shuffle_buffer=8).load_state_dict(state)
