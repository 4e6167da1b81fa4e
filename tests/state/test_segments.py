"""States over the joints of segments: exact, small, and loaded in seconds at any age of a run."""

import random
import time

import numpy as np
import pytest
from segments import segments_of
from worlds import global_batches, loader_of, numbers_of, run_world

import pyecho
from pyecho.state.walk import digest

ITEMS, EPOCHS = 23, 20
OPTIONS = {"factor": 2.5, "batch_size": 4, "shuffle_buffer": 6, "epochs": EPOCHS}
SHARDS = 12


@pytest.fixture(autouse=True)
def short_segments():
    with segments_of(50):
        yield


def loader_with(**options):
    return pyecho.EchoLoader(np.arange(ITEMS), **OPTIONS | options)


def rest_of(loader, count):
    """Return batches up to this many, in all epochs."""
    taken = []
    while len(taken) < count:
        for batch in loader:
            taken.append(np.asarray(batch).tolist())
            if len(taken) == count:
                return taken
    return taken


def test_output_is_the_same_for_any_threads():
    outputs = [rest_of(loader_with(threads=threads), 290) for threads in (0, 1, 2, 4)]
    assert all(output == outputs[0] for output in outputs)


@pytest.mark.parametrize("payload", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"epochs": None, "steps_per_epoch": 13},
        {"batch_size": None, "shuffle_buffer": 5},
        {"shards": 4, "shuffle_buffer": 8},
        {"unique_in_batch": True},
        {"augment": lambda batch, rng: batch, "augment_workers": 2},
        {"factor": 3, "epochs": None, "steps_per_epoch": 7, "shards": 2},
        {"ops": [pyecho.ops.Cast("float32")]},
    ],
    ids=lambda options: " ".join(options) or "epochs",
)
def test_states_of_states_go_on(options, payload):
    chooses = random.Random(len(options))
    if options.get("shards") == 2:
        items = np.arange(ITEMS - 1)
    elif "ops" in options:
        items = np.arange(2 * ITEMS).reshape(ITEMS, 2)
    else:
        items = np.arange(ITEMS)

    def make():
        threads = chooses.choice([0, 1, 2])
        return pyecho.EchoLoader(items, **OPTIONS | {"threads": threads} | options)

    wanted = rest_of(make(), 250)
    for _ in range(6):
        at, state, loader = 0, None, make()
        while at < 240:
            if state is not None:
                loader = make()
                loader.load_state_dict(state)
            count, state = chooses.randrange(1, 60), None
            while state is None:
                for batch in loader:
                    assert np.asarray(batch).tolist() == wanted[at]
                    at, count = at + 1, count - 1
                    if count == 0 or at == 249:
                        state = loader.state_dict(payload=payload)
                        break
            loader.close()
            if payload and "unique_in_batch" not in options:
                assert (
                    sum(count for count, _ in state["position"]["passes"]) <= 16
                )  # those made ahead included
            if at == 249:
                break


def test_state_whose_batches_made_ahead_are_of_later_segments_can_be_saved_again():
    options = OPTIONS | {"epochs": None, "prefetch": 30}
    options |= {"augment": lambda batch, rng: batch, "augment_workers": 1}
    whole, *loaders = (pyecho.EchoLoader(np.arange(50), **options) for _ in range(4))
    running = iter(loaders[0])
    next(running)
    deadline = time.monotonic() + 10
    while len(loaders[0].state_dict()["links"]["augment"][-1]) < 25 and time.monotonic() < deadline:
        time.sleep(0.01)
    loaders[1].load_state_dict(loaders[0].state_dict())
    resumed = iter(loaders[1])
    next(resumed)
    loaders[2].load_state_dict(loaders[1].state_dict())
    assert rest_of(loaders[2], 60) == rest_of(whole, 62)[2:]


def part_of(member):
    """Return the loader of a rank over its part of 60 items."""
    items = numbers_of(0, 60)[member.rank :: member.size]
    options = {"batch_size": 24 // member.size, "shuffle_buffer": 48 // member.size}
    return loader_of(member, items, 2.5, shards=SHARDS, epochs=30, **options)


@pytest.mark.parametrize("before", [1, 3, 4, 6])
def test_a_position_of_shards_serves_any_ranks_after_joints(before):
    taken_before, taken_after = 97, 30

    def begin(member):
        loader, taken, state = part_of(member), [], None
        while len(taken) < taken_before + taken_after:
            for batch in loader:
                taken.append(np.asarray(batch).tolist())
                if len(taken) == taken_before:
                    state = loader.state_dict(payload=False)
        return taken[: taken_before + taken_after], state

    results, _ = run_world(before, begin)
    wanted = global_batches([taken for taken, _ in results])[taken_before:]

    def go_on(member):
        loader = part_of(member)
        loader.load_state_dict(results[0][1])
        return rest_of(loader, taken_after)

    for ranks in (1, 2, 3, 6):
        assert global_batches(run_world(ranks, go_on)[0]) == wanted


@pytest.mark.parametrize("uses", [10**6, 10**8, 10**10])
@pytest.mark.parametrize("passes", [{"steps_per_epoch": 1000}, {"epochs": 10**9}], ids=str)
def test_resume_takes_seconds_at_any_age(passes, uses):
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
    aged, resumed = make(), make()
    aged.load_state_dict(state | {"digest": digest(state)})
    began = time.process_time()
    batches = iter(aged)
    next(batches)
    assert time.process_time() - began < 5  # of a slow machine
    resumed.load_state_dict(aged.state_dict())
    assert next(iter(resumed)).tolist() == next(batches).tolist()


class Dataset:
    """A map-style dataset of eight billion items."""

    def __len__(self):
        return 8_000_000_000

    def __getitem__(self, index):
        return index


@pytest.mark.parametrize("source", [range(8_000_000_000), Dataset()], ids=["range", "dataset"])
@pytest.mark.parametrize("batch", [20_000, 19_000_000])
def test_resume_takes_seconds_anywhere_in_a_pass(source, batch):
    def make():
        with segments_of(None):
            return pyecho.EchoLoader(source, 2.5, batch_size=1000, shuffle_buffer=1000)

    loader = make()
    next(iter(loader))
    state = loader.state_dict(payload=False)
    del state["digest"]
    state["position"] |= {"batches": batch, "delivered": batch}
    far, resumed = make(), make()
    far.load_state_dict(state | {"digest": digest(state)})
    began = time.process_time()
    batches = iter(far)
    next(batches)
    assert time.process_time() - began < 10  # of a slow machine
    resumed.load_state_dict(far.state_dict(payload=False))
    assert next(iter(resumed)).tolist() == next(batches).tolist()
