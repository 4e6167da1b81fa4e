"""States over the joints of segments: small, and loaded by planning one at any age of a run."""

import numpy as np
import pytest
from segments import segments_of
from waiting import wait_until

import pyecho
from pyecho.state.loaded import digest
from pyecho.state.position import Position

OPTIONS = {"factor": 2.5, "batch_size": 4, "shuffle_buffer": 6, "epochs": 20}


@pytest.fixture(autouse=True)
def short_segments():
    with segments_of(50):
        yield


def rest_of(loader, count):
    """Return batches up to this many, in all epochs."""
    taken = []
    while len(taken) < count:
        for batch in loader:
            taken.append(np.asarray(batch).tolist())
            if len(taken) == count:
                return taken
    return taken


@pytest.mark.parametrize("options", [{}, {"epochs": None, "steps_per_epoch": 13}], ids=str)
def test_states_remember_few_passes(options):
    loader = pyecho.EchoLoader(np.arange(23), **OPTIONS | options)
    for _ in range(19):
        for number, _ in enumerate(loader):
            if number == 9:
                passes = loader.state_dict()["position"]["passes"]
                assert sum(count for count, _ in passes) <= 16  # the ones made ahead included


def test_state_whose_batches_made_ahead_are_of_later_segments_can_be_saved_again():
    options = OPTIONS | {"epochs": None, "prefetch": 30}
    options |= {"augment": lambda batch, rng: batch, "augment_workers": 1}
    whole, *loaders = (pyecho.EchoLoader(np.arange(50), **options) for _ in range(4))
    running = iter(loaders[0])
    next(running)
    wait_until(lambda: len(loaders[0].state_dict()["links"]["augment"][-1]) >= 25)
    loaders[1].load_state_dict(loaders[0].state_dict())
    resumed = iter(loaders[1])
    next(resumed)
    loaders[2].load_state_dict(loaders[1].state_dict())
    assert rest_of(loaders[2], 60) == rest_of(whole, 62)[2:]


def goes_on(make, state, *, payload):
    """Check that a position far on is reached from its segment, and goes on from there."""
    far, resumed = make(), make()
    far.load_state_dict(state | {"digest": digest(state)})
    batches = iter(far)
    next(batches)
    assert Position.of_input(far.state_dict()["position"]).fed < 2**24  # a whole run has billions
    resumed.load_state_dict(far.state_dict(payload=payload))
    assert next(iter(resumed)).tolist() == next(batches).tolist()


@pytest.mark.parametrize("uses", [10**6, 10**10])
@pytest.mark.parametrize("passes", [{"steps_per_epoch": 1000}, {"epochs": 10**9}], ids=str)
def test_resume_plans_a_segment_at_any_age(passes, uses):
    options = {"factor": 2.5, "batch_size": 100, "shuffle_buffer": 1000} | passes

    def make():
        with segments_of(None):
            return pyecho.EchoLoader(np.arange(10_001), **options)

    loader = make()
    first = iter(loader)
    next(first)
    state = loader.state_dict(payload=False)
    of_epoch = options.get("steps_per_epoch") or len(loader)
    epoch, batch = divmod(uses // 100, of_epoch)
    moved = {"iterations": epoch, "batches": batch, "delivered": batch}
    state |= {"epoch": epoch, "position": state["position"] | moved}
    del state["digest"]
    goes_on(make, state, payload=True)


class Dataset:
    """A map-style dataset of eight billion items."""

    def __len__(self):
        return 8_000_000_000

    def __getitem__(self, index):
        return index


@pytest.mark.parametrize("source", [range(8_000_000_000), Dataset()], ids=["range", "dataset"])
@pytest.mark.parametrize("batch", [20_000, 19_000_000])
def test_resume_plans_a_segment_anywhere_in_a_pass(source, batch):
    def make():
        with segments_of(None):
            return pyecho.EchoLoader(source, 2.5, batch_size=1000, shuffle_buffer=1000)

    loader = make()
    next(iter(loader))
    state = loader.state_dict(payload=False)
    del state["digest"]
    state["position"] |= {"batches": batch, "delivered": batch}
    goes_on(make, state, payload=False)


def test_state_that_would_take_long_to_plan_again_says_what_to_do():
    def make():
        options = OPTIONS | {"epochs": None, "steps_per_epoch": 13}
        return pyecho.EchoLoader(np.arange(23), unique_in_batch=True, **options)

    loader, again = make(), make()
    next(iter(loader))
    state = loader.state_dict(payload=False)
    state["position"] |= {"iterations": 2**36}
    state["digest"] = digest(state)
    again.load_state_dict(state)
    with pytest.raises(pyecho.CheckpointError, match="pass epochs= instead of steps_per_epoch="):
        next(iter(again))
