"""Sources that are read again: another order in the second process is found, never taken."""

import contextlib
import pickle
import random
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyecho
from pyecho.source.seen import MOST_SAMPLES, Samples, Seen, digest_of_item

SETTINGS = settings(max_examples=60, deadline=None)


class Shuffled:
    """A stream of examples or batches whose order another generator decides in each process."""

    def __init__(self, count, seed, *, make=lambda index, draw: index, rows=None):
        self.count, self.seed, self.make, self.rows = count, seed, make, rows
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        order = list(range(self.count))
        random.Random(f"{self.seed} {self.epoch}").shuffle(order)
        draw = random.Random()  # of augmentation
        if self.rows is None:
            yield from (self.make(index, draw) for index in order)
            return
        for begin in range(0, self.count, self.rows):
            yield np.array(order[begin : begin + self.rows])


def taken(loader, count):
    found = []
    while len(found) < count:
        for batch in loader:
            found.append(pickle.dumps(batch))
            if len(found) == count:
                break
    return found


def resumed(make, count, more, *, payload=True, second=None):
    """Return what is yielded after a state was taken, and what was yielded there at first."""
    with make() as loader:
        taken(loader, count)
        state = pickle.loads(pickle.dumps(loader.state_dict(payload=payload)))
    with make() as loader:
        whole = taken(loader, count + more)[count:]
    with (second or make)() as loader:
        loader.load_state_dict(state)
        return taken(loader, more), whole


OPTIONS = st.fixed_dictionaries(
    {
        "count": st.integers(40, 300),
        "rows": st.sampled_from([None, 3, 8]),
        "stop": st.integers(4, 60),
        "payload": st.booleans(),
    }
)


@SETTINGS
@given(options=OPTIONS, seed=st.integers(0, 1000))
def test_another_order_is_an_error_and_never_the_rest_of_another_epoch(options, seed):
    make, other = loader_of(options, seed), loader_of(options, seed + 1)
    with make() as loader:
        taken(loader, options["stop"])
        state = loader.state_dict(payload=options["payload"])
    with make() as loader:
        loader.load_state_dict(state)
        rest = [batch.tolist() for batch in loader]
    with other() as loader:
        loader.load_state_dict(state)
        with contextlib.suppress(pyecho.CheckpointError):
            assert [batch.tolist() for batch in loader] == rest


@pytest.mark.parametrize("rows", [None, 8])
@pytest.mark.parametrize("payload", [True, False])
def test_another_order_is_found_before_the_next_batch(rows, payload):
    options = {"count": 300, "rows": rows}
    with pytest.raises(pyecho.CheckpointError, match=r"WebDataset\(\.\.\., seed=\)"):
        resumed(loader_of(options, 1), 30, 1, payload=payload, second=loader_of(options, 2))


def loader_of(options, seed):
    source = {name: options[name] for name in ("count", "rows")}
    unbatch = options["rows"] is not None
    return lambda: pyecho.EchoLoader(
        Shuffled(seed=seed, **source), 2, batch_size=6, unbatch=unbatch, shuffle_buffer=10
    )


def augmented(index, draw):
    image = np.array([draw.randrange(256) for _ in range(8)], np.uint8).reshape(2, 4)
    return {"image": image, "label": index % 10, "flipped": draw.random() < 0.5}


@pytest.mark.parametrize("payload", [True, False])
def test_random_augmentation_beside_labels_is_no_other_order(payload):
    def make(seed=1):
        return pyecho.EchoLoader(Shuffled(200, seed, make=augmented), 2, batch_size=4)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resumed(make, 40, 10, payload=payload)
    with pytest.raises(pyecho.CheckpointError, match="item"):
        resumed(make, 40, 200, payload=payload, second=lambda: make(2))


def test_items_that_are_nothing_but_random_are_a_warning():
    def make():
        draws = Shuffled(200, 1, make=lambda index, draw: np.array([draw.random()]))
        return pyecho.EchoLoader(draws, 2, batch_size=4)

    with pytest.warns(RuntimeWarning, match="random augmentation"):
        resumed(make, 40, 10)


@pytest.mark.parametrize("payload", [True, False])
def test_another_order_of_texts_and_objects_in_lists_is_an_error(payload):
    def make(seed=1):
        texts = Shuffled(100, seed, make=lambda index, draw: [{"key": f"k{index}", "of": object}])
        return pyecho.EchoLoader(texts, 2, unbatch="lists")

    with pytest.raises(pyecho.CheckpointError, match="order"):
        resumed(make, 40, 200, payload=payload, second=lambda: make(2))


def test_items_may_be_changed_in_place_once_they_are_read():
    class Reused:
        def __iter__(self):
            item = np.zeros(3, np.int64)
            for index in range(50):
                item[:] = index
                yield item

    found, whole = resumed(lambda: pyecho.EchoLoader(Reused(), 2, batch_size=4), 10, 8)
    assert found == whole


def test_samples_are_few_and_evenly_spread():
    seen = Seen()
    assert list(seen.watched(iter(range(100_000)), digest_of_item)) == list(range(100_000))
    [[epoch, step, samples]] = seen.state()
    assert epoch == 0
    assert MOST_SAMPLES // 2 <= len(samples) < MOST_SAMPLES
    assert [digest_of_item(step * number)[0] for number in range(len(samples))] == samples
    assert 100_000 - step * (len(samples) - 1) <= 2 * step


def test_ctrl_c_costs_no_item_and_no_sample():
    def interrupted(item):
        if item not in met:
            met.add(item)
            raise KeyboardInterrupt
        return digest_of_item(item)

    met, found, seen = set(), [], Seen()
    items = Samples(iter(range(100)), interrupted, seen)
    while len(found) < 100:
        try:
            found.append(next(items))
        except KeyboardInterrupt:
            continue
    assert found == list(range(100))
