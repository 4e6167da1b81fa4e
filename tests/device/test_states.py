"""Loaders whose batches go to a device are saved and go on."""

import pickle
from functools import partial

import pytest
import torch
from host_device import there

import pyecho.torch

pytestmark = pytest.mark.slow

EXAMPLES = {"factor": 2.5, "batch_size": 4, "shuffle_buffer": 6}
WAYS = {
    "batches": {"factor": 3, "shuffle_buffer": 3},
    "examples": EXAMPLES,
    "augmented": EXAMPLES | {"augment": lambda batch, rng: {**batch, "drawn": rng.random()}},
    "on the device": EXAMPLES | {"echo_on": "device"},
    "on the device, whole": EXAMPLES
    | {"echo_on": "device", "drop_last": True, "unique_in_batch": True, "epochs": 2},
}
OPTIONS = {
    "": {},
    "augmented there": {
        "device_augment": lambda batch, rng: {
            **batch,
            "noise": torch.rand(3, generator=rng, device=rng.device),
        }
    },
    "converted": {"device_dtype": torch.float64},
}


def item(n, place):
    row, half = torch.full((3,), float(n)), torch.full((2,), n, dtype=torch.bfloat16)
    return {"row": place(row), "half": half, "n": n, "s": str(n)}


class Source:
    """Makes items, on the device if that is their place."""

    def __init__(self, place=lambda tensor: tensor):
        self.place = place

    def __iter__(self):
        return (item(n, self.place) for n in range(23))


class Stateful(Source):
    """Goes on by a state of its own."""

    taken = 0

    def __iter__(self):
        while self.taken < 23:
            self.taken += 1
            yield item(self.taken - 1, self.place)
        self.taken = 0

    def state_dict(self):
        return {"taken": self.taken}

    def load_state_dict(self, state):
        self.taken = state["taken"]


SOURCES = {
    "read again": Source,
    "small": Source,
    "stateful": Stateful,
    "made there": partial(Source, there),
}


def plain(emission):
    batch, info = emission
    values = {
        name: leaf.float().tolist() if isinstance(leaf, torch.Tensor) else leaf
        for name, leaf in batch.items()
    }
    return values, info.source_index.tolist(), info.use.tolist()


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("way", WAYS)
def test_another_loader_goes_on(device, way, options, source):
    arguments = {"device": "cuda:0", "with_info": True} | WAYS[way] | OPTIONS[options]
    if source == "made there" and "batch_size" in arguments and "echo_on" not in arguments:
        arguments["echo_on"] = "device"  # batches of them are made nowhere else
        arguments.pop("augment", None)

    def new_loader():
        return pyecho.torch.EchoLoader(SOURCES[source](), **arguments)

    def take(batches, count):
        return [plain(next(batches)) for _ in range(count)]

    with new_loader() as loader:
        whole = [plain(each) for each in loader]
    for stop in (1, 9, len(whole)):
        with new_loader() as loader:
            batches = iter(loader)
            assert take(batches, stop) == whole[:stop]
            state = pickle.dumps(loader.state_dict(payload=source != "small"))
            assert take(batches, len(whole) - stop) == whole[stop:]  # nothing is lost by it
        with new_loader() as resumed:
            resumed.load_state_dict(pickle.loads(state))
            assert [plain(each) for each in resumed] == whole[stop:]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("epochs", [None, 2])
def test_states_of_states_go_on(device, way, source, epochs):
    """After a batch or an end: load, next, state, load, next, ... over two epochs."""
    if source == "made there" and "on the device" not in way:
        return  # batches of them are made nowhere else
    arguments = {"device": "cuda:0", "with_info": True} | WAYS[way] | {"epochs": epochs}

    def new_loader():
        return pyecho.torch.EchoLoader(SOURCES[source](), **arguments)

    def take(batches, loader, count):
        taken = []
        while len(taken) < count:
            emission = next(batches, None)
            taken.append(emission and plain(emission))
            if emission is None:
                batches = iter(loader)
        return taken, batches

    with new_loader() as loader:
        epoch = [*map(plain, loader), None]
        whole = [*epoch, *map(plain, loader), None]
    for stop in (1, len(epoch) - 2, len(epoch) - 1, len(epoch), len(epoch) + 1, len(whole) - 1):
        loader = new_loader()
        found = take(iter(loader), loader, stop)  # and keep the iterator
        taken = found[0]
        for step in (1, 1, len(whole)):
            state = pickle.dumps(loader.state_dict(payload=source != "small"))
            loader.close()
            loader = new_loader()
            loader.load_state_dict(pickle.loads(state))
            found = take(iter(loader), loader, min(step, len(whole) - len(taken)))
            taken += found[0]
        loader.close()
        assert taken == whole, stop
