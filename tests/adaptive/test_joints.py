"""An adaptive factor over joints of segments: bounds, the log, states that tell of one segment."""

import random
import time
from collections import deque
from itertools import chain, islice

import numpy as np
import pytest
from segments import segments_of
from worlds import loader_of, numbers_of, run_world

import pyecho

ITEMS = 50
OPTIONS = {"batch_size": 4, "shuffle_buffer": 12, "seed": 3, "with_info": True}
WAYS = [
    {"epochs": 8},
    {"steps_per_epoch": 13},
    {"epochs": 8, "unique_in_batch": True},
    {"steps_per_epoch": 13, "unique_in_batch": True},
    {"epochs": 8, "batch_size": None},
    {"epochs": 8, "augment": lambda batch, rng: batch, "augment_workers": 2},
]


class Unsteady:
    """Numbers, some of which come late."""

    def __init__(self, late=0.2):
        self.late, self.random = late, random.Random(5)

    def __iter__(self):
        for number in range(ITEMS):
            if self.random.random() < self.late:
                time.sleep(self.random.random() * 1e-3)
            yield np.int64(number)


@pytest.fixture(autouse=True)
def short_segments():
    with segments_of(60):
        yield


def loader_with(factor, late=0.2, **options):
    return pyecho.EchoLoader(Unsteady(late), factor, **OPTIONS | options)


def rows_of(emission):
    batch, info = emission
    return list(zip(np.atleast_1d(batch).tolist(), info.use.tolist(), strict=True))


def rest_of(loader, count):
    """Return batches up to this many, in all epochs."""
    taken = []
    while len(taken) < count:
        for emission in loader:
            taken.append(rows_of(emission))
            if len(taken) == count:
                break
    return taken


@pytest.mark.parametrize("payload", [True, False])
@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_states_go_on_and_their_logs_together_replay_the_run(way, payload):
    chooses = random.Random(len(way))
    factor = pyecho.Adaptive(5, min=1)
    taken, log, state, joints = [], {}, None, 0
    while len(taken) < 100:
        loader = loader_with(factor, threads=chooses.choice([0, 1, 2]), **way)
        if state is not None:
            loader.load_state_dict(state)
        most, state = len(taken) + chooses.randrange(1, 20), None
        while state is None:
            for emission in loader:
                taken.append(rows_of(emission))
                if len(taken) >= most:
                    state = loader.state_dict(payload=payload)
                    break
        log |= loader.stats().log
        position = state["position"]
        assert position["segment"] is None or position["passes"] is not None
        joints += position["segment"] is not None
        # Of a segment, a pool that drains, and what is made ahead.
        assert len(position["decisions"]) < 2 * (60 + 5 * 50) + 100
        loader.close()
    assert joints > 2
    assert max(use for rows in taken for _, use in rows) < 5
    if "unique_in_batch" in way:
        assert all(len({item for item, _ in rows}) == len(rows) for rows in taken)
    with loader_with(factor.replay(log), 0, **way) as whole:
        assert rest_of(whole, len(taken)) == taken


def test_log_without_its_beginning_replays_what_follows_a_state():
    factor = pyecho.Adaptive(5, min=1)
    with loader_with(factor, epochs=8) as loader:
        emissions = chain.from_iterable(loader for _ in range(8))
        deque(islice(emissions, 60), maxlen=0)
        state = loader.state_dict()
        wanted = [rows_of(emission) for emission in islice(emissions, 40)]
        later = {key: column for key, column in loader.stats().log.items() if key != 0}
    with loader_with(factor.replay(later), epochs=8) as resumed:
        resumed.load_state_dict(state)
        assert rest_of(resumed, 40) == wanted


def test_plan_of_a_whole_run_has_no_joints():
    rows, plan = np.arange(400), ([4] * 20 + [1] * 20) * 4
    options = {"batch_size": 4, "shuffle_buffer": 4, "with_info": True}
    loader = pyecho.EchoLoader(rows, pyecho.Adaptive(16).replay({0: plan}), **options)
    fresh = [int((info.use == 0).sum()) for _, info in loader]
    assert sum(fresh) == 400
    log = loader.stats().log
    assert list(log) == [0]
    assert log[0][: len(plan)].tolist() == plan


def test_each_rank_has_joints_of_its_own():
    def make(member):
        items = np.array(numbers_of(member.rank, 30))
        options = {"batch_size": 4, "shuffle_buffer": 8, "steps_per_epoch": 5}
        return loader_of(member, items, pyecho.Adaptive(3), **options)

    def take(loader, count):
        taken = []
        while len(taken) < count:
            for batch in loader:
                taken.append(np.asarray(batch).tolist())
                if len(taken) == count:
                    break
        return taken

    def begins(member):
        with make(member) as loader:
            begun = take(loader, 62)
            states = [loader.state_dict(payload=payload) for payload in (True, False)]
            return begun, states, loader.stats().log

    results, _ = run_world(2, begins)

    def goes_on(member):
        begun, states, log = results[member.rank]
        assert all(state["position"]["segment"] is not None for state in states)
        for state in states:
            with make(member) as loader:
                loader.load_state_dict(state)
                rest = take(loader, 20)
                log |= loader.stats().log
        items = np.array(numbers_of(member.rank, 30))
        options = {"batch_size": 4, "shuffle_buffer": 8, "steps_per_epoch": 5}
        factor = pyecho.Adaptive(3).replay(log)
        with loader_of(member, items, factor, **options) as whole:
            assert take(whole, 82) == begun + rest

    run_world(2, goes_on)


def test_resume_and_log_stay_small_at_any_age():
    options = {"batch_size": 500, "shuffle_buffer": 1000, "steps_per_epoch": 1009}

    def make():
        with segments_of(None):
            return pyecho.EchoLoader(np.arange(50_000), pyecho.Adaptive(8, min=4), **options)

    loader, taken = make(), 0
    while taken < 10**7:
        for batch in loader:
            taken += len(batch)
            if taken >= 10**7:
                break
    state = loader.state_dict()
    assert len(state["position"]["decisions"]) < 2 * 2**21 / 500 + 100
    resumed = make()
    began = time.process_time()
    resumed.load_state_dict(state)
    next(iter(resumed))
    assert time.process_time() - began < 5  # of a slow machine
