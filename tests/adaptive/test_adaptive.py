"""An adaptive factor: the bounds of uses, the log, and what it decides."""

import threading
import time
import weakref
from collections import Counter, deque
from itertools import chain

import numpy as np
import pytest
from waiting import wait_until

import pyecho

pytestmark = pytest.mark.slow


class Slow:
    """Numbers, some of which come late."""

    def __init__(self, count, late=0.0):
        self.count, self.late, self.random = count, late, np.random.default_rng(0)

    def __iter__(self):
        for number in range(self.count):
            if self.random.random() < self.late:
                time.sleep(self.random.random() * 2e-3)
            yield np.array(number)


@pytest.mark.parametrize("batch_size", [None, 4])
def test_source_that_stops_lets_every_item_of_the_pool_have_its_most_uses(batch_size):
    goes_on = threading.Event()

    def source():
        yield from np.arange(12)
        assert goes_on.wait(60)

    loader = pyecho.EchoLoader(
        source(), pyecho.Adaptive(5), batch_size=batch_size, shuffle_buffer=12
    )
    taken = []

    def consume():
        for batch in loader:
            taken.append(np.atleast_1d(batch).tolist())

    consumer = threading.Thread(target=consume)
    consumer.start()
    assert wait_until(lambda: sum(map(len, taken)) == 60)
    goes_on.set()
    consumer.join()
    assert Counter(chain(*taken)) == dict.fromkeys(range(12), 5)


def test_source_that_keeps_up_has_the_least_uses():
    source = Slow(400)
    loader = pyecho.EchoLoader(source, pyecho.Adaptive(8, min=2), batch_size=8)
    taken = []
    for batch in loader:
        taken += batch.tolist()
        arrived = loader.stats().read  # at least another batch: the consumer is the limit
        if arrived < min(400, len(taken) // 2 + 96):
            assert wait_until(lambda arrived=arrived: loader.stats().read > arrived)
    assert Counter(taken) == dict.fromkeys(range(400), 2)
    assert loader.stats().effective_factor == 2


def test_log_of_another_run_is_an_error():
    def loader(count, factor):
        return pyecho.EchoLoader(np.arange(count), factor, batch_size=4)

    first = loader(100, pyecho.Adaptive(3))
    assert sum(map(len, first)) >= 100
    log = first.stats().log
    for count in (50, 200):
        with pytest.raises(pyecho.CheckpointError, match="not that of this run"):
            deque(loader(count, pyecho.Adaptive(3).replay(log)), maxlen=0)


def test_example_that_leaves_early_takes_its_references_along():
    class Held:
        """Something that can be counted."""

    made = []

    def source():
        for _ in range(3000):
            held = Held()
            made.append(weakref.ref(held))
            yield held

    loader = pyecho.EchoLoader(source(), pyecho.Adaptive(9), batch_size=4, shuffle_buffer=8)
    most = 0
    for _ in loader:
        most = max(most, sum(each() is not None for each in made))
    assert most < 1000  # those in slots, and of small batches made ahead


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max": 0}, "max must be at least 1"),
        ({"max": 2.5}, "max must be an int"),
        ({"max": 2, "min": 3}, "min must be at least 1 and at most 2"),
        ({"max": 2, "max_age": 0}, "max_age must be at least 1"),
        ({"max": 2, "replay": [1]}, "replay needs the log"),
        ({"max": 2, "replay": {0: [-1]}}, "replay needs the log"),
        ({"max": 2, "replay": {0: [0.5]}}, "replay needs the log"),
        ({"max": 2, "replay": {-1: [1]}}, "replay needs the log"),
        ({"max": 2, "replay": {0.5: [1]}}, "replay needs the log"),
        ({"max": 2, "replay": {2**64: [1]}}, "replay needs the log"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(pyecho.ConfigError, match=message):
        pyecho.Adaptive(**arguments)


def test_length_is_unknown():
    with pytest.raises(TypeError, match="depends on the source's speed; to fix it, pass steps"):
        len(pyecho.EchoLoader([1], pyecho.Adaptive(2)))
    assert len(pyecho.EchoLoader([1], pyecho.Adaptive(2), steps_per_epoch=7)) == 7


def test_state_with_much_made_ahead_fits_a_buffer_that_makes_little():
    spec = {"x": pyecho.Field((), np.int64), "text": pyecho.Field((), object)}
    options = {"batch_size": 8, "shuffle_buffer": 8, "factor": pyecho.Adaptive(2)}
    first = pyecho.EchoBuffer(spec, slots_ahead=3000, **options)
    for number in range(2500):
        first.put({"x": number, "text": str(number)})
    second = pyecho.EchoBuffer(spec, prefetch=1, threads=0, **options)
    second.load_state_dict(first.state_dict())
    second.close()
    seen = set()
    for batch in second:
        assert batch["text"] == list(map(str, batch["x"]))
        seen.update(batch["x"].tolist())
    assert seen == set(range(2500))


def test_state_in_which_the_whole_pool_is_too_old_goes_on():
    goes_on = threading.Event()

    def source():
        for number in range(200):
            if number == 79:
                assert goes_on.wait(60)
            yield np.full(1 << 18, number % 256, np.uint8)

    options = {"batch_size": 20, "shuffle_buffer": 40, "prefetch": 1, "threads": 1}
    factor = pyecho.Adaptive(20, min=4, max_age=12)
    first = pyecho.EchoLoader(source(), factor, **options)
    batches = iter(first)
    for _ in range(12):
        next(batches)
    assert wait_until(lambda: first.stats().read == 79)
    state = first.state_dict()
    goes_on.set()
    second = pyecho.EchoLoader(source(), factor, **options)
    second.load_state_dict(state)
    assert {int(row[0]) for batch in second for row in batch} >= set(range(79, 200))


def test_state_of_a_run_with_another_log_is_an_error():
    def loader(factor, late):
        return pyecho.EchoLoader(Slow(300, late), factor, batch_size=4, shuffle_buffer=8)

    logs = []
    for late in (0, 1):
        loading = loader(pyecho.Adaptive(4), late)
        batches = iter(loading)
        for _ in range(40):
            next(batches)
        logs.append(loading.stats().log)
        state = loading.state_dict(payload=False)
    other = loader(pyecho.Adaptive(4).replay(logs[0]), 0)
    other.load_state_dict(state)
    with pytest.raises(pyecho.CheckpointError, match="not that of this run"):
        next(iter(other))
