"""States of an EchoBuffer, which a program feeds by hand."""

import copy
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from resuming import columns, example
from waiting import wait_until

import pyecho
from pyecho.state.loaded import digest

SPEC = pyecho.spec_of(example(0))


def fed(buffer, first, items):
    """Put the items from `first` on in a thread, then close; return the thread."""

    def feed():
        for item in range(first, items):
            buffer.put(example(item))
        buffer.close()

    thread = threading.Thread(target=feed)
    thread.start()
    return thread


def at_rest(count):
    """Wait until a count has not changed for a while: the thread that counts waits."""
    before = -1
    while before != (before := count()) or before == 0:
        time.sleep(0.1)


def plain(emission):
    batch, info = emission
    assert batch["name"] == [f"item {item}" for item in batch["row"][:, 0]]
    return batch["row"].tolist(), info.source_index.tolist(), info.use.tolist()


@given(
    items=st.integers(1, 60),
    factor=st.sampled_from([1, 2, 3.5]),
    capacity=st.integers(4, 30),
    unique=st.booleans(),
    drop_last=st.booleans(),
    threads=st.tuples(*[st.sampled_from([0, 1, 3])] * 2),
    prefetch=st.tuples(*[st.sampled_from([1, 9])] * 2),
    stop=st.integers(0, 60),
)
def test_another_buffer_goes_on(
    items, factor, capacity, unique, drop_last, threads, prefetch, stop
):
    def buffer(which):
        return pyecho.EchoBuffer(
            SPEC,
            batch_size=4,
            factor=factor,
            shuffle_buffer=capacity,
            unique_in_batch=unique,
            drop_last=drop_last,
            threads=threads[which],
            prefetch=prefetch[which],
            with_info=True,
        )

    first = buffer(0)
    feeder = fed(first, 0, items)
    whole = list(map(plain, first))
    feeder.join()
    assert list(map(plain, first)) == []

    stop = min(stop, len(whole))
    second = buffer(0)
    feeder = fed(second, 0, items)
    batches = iter(second)
    assert [plain(next(batches)) for _ in range(stop)] == whole[:stop]
    state = second.state_dict()
    assert [plain(batch) for batch in batches] == whole[stop:]  # nothing is lost by it
    feeder.join()

    third = buffer(1)
    third.load_state_dict(state)
    if not state["position"]["ended"]:
        feeder = fed(third, state["taken"], items)
    assert list(map(plain, third)) == whole[stop:]
    feeder.join()


def test_input_that_was_closed_is_closed_again():
    buffer = pyecho.EchoBuffer(SPEC, batch_size=2)
    buffer.put_batch(columns(0, 3))
    open_state = buffer.state_dict()
    buffer.close()
    closed_state = buffer.state_dict()
    resumed = pyecho.EchoBuffer(SPEC, batch_size=2)
    resumed.load_state_dict(closed_state)
    with pytest.raises(pyecho.Closed):
        resumed.put(example(3))
    assert sum(1 for _ in resumed) == 3
    resumed.load_state_dict(open_state)
    resumed.put(example(3))
    resumed.close()
    assert sum(1 for _ in resumed) == 4


def test_items_of_a_state_are_in_the_order_of_the_source():
    buffer = pyecho.EchoBuffer(SPEC, batch_size=2, factor=2, shuffle_buffer=6, threads=0)
    for start in range(0, 60, 2):
        buffer.put_batch(columns(start, start + 2))
        for _ in range(2 * (start > 10)):
            next(iter(buffer))
        assert np.all(np.diff(buffer.state_dict()["unspent"]["numbers"]) > 0)


def test_items_made_ahead_find_room_in_a_smaller_buffer():
    arguments = {"batch_size": 8, "factor": 1, "seed": 3}
    big = pyecho.EchoBuffer(SPEC, prefetch=32, threads=1, **arguments)
    big.put_batch(columns(0, 200))
    state = big.state_dict()
    assert len(state["unspent"]["numbers"]) == 200
    small = pyecho.EchoBuffer(SPEC, prefetch=1, threads=0, **arguments)
    small.load_state_dict(state)
    small.close()
    assert [item for batch in small for item in batch["row"][:, 0].tolist()] == list(range(200))
    bounded = pyecho.EchoBuffer(SPEC, prefetch=1, threads=0, max_bytes=25_000, **arguments)
    with pytest.raises(pyecho.ConfigError, match="need max_bytes"):
        bounded.load_state_dict(state)


def test_state_of_another_buffer_is_refused():
    state = pyecho.EchoBuffer(SPEC, batch_size=2).state_dict()
    for other, message in (
        ({"batch_size": 3}, "batch_size=2, and here it is 3"),
        ({"batch_size": 2, "shuffle_buffer": 5}, "shuffle_buffer=1, and here it is 5"),
        ({"batch_size": 2, "seed": 1}, "seed=0, and here it is 1"),
    ):
        with pytest.raises(pyecho.CheckpointError, match=message):
            pyecho.EchoBuffer(SPEC, **other).load_state_dict(state)
    other_spec = pyecho.spec_of({"row": np.zeros(5, np.int64), "name": ""})
    with pytest.raises(pyecho.CheckpointError, match=r"int64 \(5,\)"):
        pyecho.EchoBuffer(other_spec, batch_size=2).load_state_dict(state)


def test_state_is_taken_by_the_consumer_between_two_batches():
    buffer = pyecho.EchoBuffer(SPEC, batch_size=2)
    entered = threading.Event()

    def consume():
        entered.set()
        next(iter(buffer), None)

    thread = threading.Thread(target=consume)
    thread.start()
    entered.wait()
    with pytest.raises(pyecho.EchoError, match="between two batches"):
        wait_until(lambda: not buffer.state_dict())  # until it is inside
    buffer.close()
    thread.join()
    buffer.stop()
    with pytest.raises(pyecho.Closed):
        buffer.state_dict()


@pytest.mark.parametrize("way", ["put", "put_batch", "reserve"])
def test_load_state_dict_beside_a_producer_is_an_error_and_changes_nothing(way):
    state = pyecho.EchoBuffer({"row": pyecho.Field((5,), np.int64)}, batch_size=2).state_dict()
    buffer = pyecho.EchoBuffer({"row": pyecho.Field((5,), np.int64)}, batch_size=2, threads=0)
    rows = {"row": np.zeros((1, 5), np.int64)}
    calls = {
        "put": lambda: buffer.put({"row": rows["row"][0]}),
        "put_batch": lambda: buffer.put_batch(rows),
        "reserve": lambda: buffer.reserve().commit(),
    }
    count, ended = 0, []

    def produce():
        nonlocal count
        try:
            while True:  # until the buffer is full, and then once it was stopped
                calls[way]()
                count += 1
        except pyecho.Closed:
            ended.append(count)

    thread = threading.Thread(target=produce)
    thread.start()
    at_rest(lambda: count)
    with pytest.raises(pyecho.EchoError, match="1 are inside of put"):
        buffer.load_state_dict(state)
    assert next(iter(buffer))["row"].shape == (2, 5)  # nothing has changed
    buffer.stop()
    thread.join()
    buffer.load_state_dict(state)
    buffer.close()
    assert list(buffer) == []
    assert ended == [count]


def test_load_state_dict_with_a_reserved_slot_is_an_error_and_changes_nothing():
    buffer = pyecho.EchoBuffer({"row": pyecho.Field((5,), np.int64)}, batch_size=2, factor=1)
    state = buffer.state_dict()
    reservation = buffer.reserve()
    with pytest.raises(pyecho.EchoError, match="1 slots are reserved"):
        buffer.load_state_dict(state)
    reservation.commit()
    buffer.close()
    assert sum(len(batch["row"]) for batch in buffer) == 1


@pytest.mark.parametrize(
    "forged",
    [
        {"batches": 50, "delivered": 50},
        {"iterations": 5},
        {"open_items": 4},
        {"open_items": 100},
        {"passes": [[3, 3]]},
    ],
    ids=str,
)
def test_load_state_dict_of_a_wrong_state_leaves_the_buffer_usable(forged):
    def buffer():
        return pyecho.EchoBuffer(SPEC, batch_size=3, shuffle_buffer=5, with_info=True)

    first = buffer()
    for item in range(5):
        first.put(example(item))
    next(iter(first))
    state = first.state_dict()
    wrong = copy.deepcopy(state)
    wrong["position"] |= forged
    wrong["digest"] = digest(wrong)
    second = buffer()
    with pytest.raises(pyecho.CheckpointError):
        second.load_state_dict(wrong)
    fed(second, 0, 5).join()
    whole = buffer()
    fed(whole, 0, 5).join()
    assert list(map(plain, second)) == list(map(plain, whole))
    second.load_state_dict(state)
    for each in (first, second):
        each.close()
    assert list(map(plain, second)) == list(map(plain, first))
