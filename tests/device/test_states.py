"""Loaders whose batches go to a device are saved and go on."""

import itertools
import pickle
from functools import partial

import pytest
import torch
from host_device import plain, there

import pyecho.torch
from pyecho.torch import Device

pytestmark = pytest.mark.slow

EXAMPLES = {"factor": 2.5, "batch_size": 4, "shuffle_buffer": 6}
WAYS = {
    "batches": {"factor": 3, "shuffle_buffer": 3},
    "examples": EXAMPLES,
    "augmented": EXAMPLES | {"augment": lambda batch, rng: {**batch, "drawn": rng.random()}},
    "on the device": EXAMPLES | {"echo": True},
    "on the device, whole": EXAMPLES
    | {"echo": True, "drop_last": True, "unique_in_batch": True, "epochs": 2},
}


def noisy(batch, rng):
    return {**batch, "noise": torch.rand(3, generator=rng, device=rng.device)}


OPTIONS = {
    "": ({}, {}),
    "two epochs that flow": ({"epochs": 2}, {}),
    "augmented there": ({}, {"augment": noisy}),
    "converted": ({}, {"dtype": torch.float64}),
}
"""Options of the loader, and of the device."""


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


CASES = [
    (way, source)
    for way, source in itertools.product(WAYS, SOURCES)
    if source != "made there" or "batch_size" not in WAYS[way]
]


@pytest.mark.parametrize(
    ("case", "options"), [*zip(CASES, itertools.cycle(OPTIONS), strict=False)], ids=str
)
def test_states_of_states_go_on(device, case, options):
    """After a batch or an end: load, next, state, load, next, ... over two epochs."""
    (way, source), (more, on_device) = case, OPTIONS[options]
    arguments = {"with_info": True} | WAYS[way] | more
    arguments["device"] = Device("cuda:0", echo=arguments.pop("echo", False), **on_device)

    def new_loader():
        return pyecho.torch.EchoLoader(SOURCES[source](), **arguments)

    def take(batches, loader, count):
        taken = []
        while len(taken) < count:
            emission = next(batches, None)
            taken += [None] if emission is None else plain([emission])
            if emission is None:
                batches = iter(loader)
        return taken, batches

    with new_loader() as loader:
        epoch = [*plain(loader), None]
        whole = [*epoch, *plain(loader), None]
    for stop in (1, len(epoch) - 2, len(epoch) - 1, len(epoch), len(epoch) + 1, len(whole) - 1):
        loader = new_loader()
        found = take(iter(loader), loader, stop)  # and keep the iterator
        taken = found[0]
        for step in (1, 1, len(whole)):
            state = pickle.dumps(loader.state_dict(payload=source != "small"))
            if len(taken) == stop:
                rest, _ = take(found[1], loader, len(whole) - len(taken))
                assert rest == whole[len(taken) :], "the state took something away"
            loader.close()
            loader = new_loader()
            loader.load_state_dict(pickle.loads(state))
            found = take(iter(loader), loader, min(step, len(whole) - len(taken)))
            taken += found[0]
        loader.close()
        assert taken == whole, stop
