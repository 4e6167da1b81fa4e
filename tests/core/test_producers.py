"""The producers' side of a buffer: put, put_batch, reserve, commit, abort, timeouts."""

import threading

import numpy as np
import pytest

import pyecho


def make(spec=None, *, factor=1, batch_size=1, **arguments):
    spec = pyecho.Field((), int) if spec is None else spec
    return pyecho.EchoBuffer(spec, batch_size=batch_size, factor=factor, **arguments)


def drained(buffer):
    buffer.close()
    return [value for batch in buffer for value in batch.tolist()]


def fill(buffer):
    """Put numbers until nothing more goes in; how many went."""
    count = 0
    while True:
        try:
            buffer.put(count, timeout=0)
        except pyecho.PutTimeout:
            try:  # a worker may have been about to free a slot
                buffer.put(count, timeout=0.2)
            except pyecho.PutTimeout:
                return count
        count += 1


# ---------------------------------------------------------------- put


def test_what_is_put_comes_out_in_order():
    buffer = make()
    for number in range(3):
        assert buffer.put(number) is None
    assert drained(buffer) == [0, 1, 2]


def test_an_array_may_be_changed_after_put():
    buffer, row = make(pyecho.Field(3, int)), np.arange(3)
    buffer.put(row)
    row[...] = -1
    assert drained(buffer) == [[0, 1, 2]]


def test_a_wrong_example_takes_nothing():
    buffer = make()
    buffer.put(1)
    for wrong in ("text", 1.5, None, np.zeros(2, int), {"a": 1}):
        with pytest.raises(pyecho.SpecMismatch):
            buffer.put(wrong)
    buffer.put(2)
    assert buffer.stats().fresh == 2
    assert drained(buffer) == [1, 2]


@pytest.mark.parametrize("timeout", [0, 0.05, -1])
def test_put_on_a_full_buffer_times_out_and_takes_nothing(timeout):
    """What others had: a deadlock with one thread on both sides. Here that thread is told."""
    buffer = make()
    count = fill(buffer)
    with pytest.raises(pyecho.PutTimeout, match=r"no slot became free within .*consumer") as raised:
        buffer.put(-1, timeout=timeout)
    assert isinstance(raised.value, TimeoutError)
    assert drained(buffer) == list(range(count))


def test_one_thread_can_be_both_producer_and_consumer():
    buffer = make(batch_size=2, factor=2)
    batches, emitted, number = iter(buffer), [], 0
    while number < 100:
        try:
            buffer.put(number, timeout=0)
            number += 1
        except pyecho.PutTimeout:
            emitted += next(batches).tolist()
    buffer.close()
    for batch in batches:
        emitted += batch.tolist()
    assert emitted == [value for value in range(100) for _ in range(2)]


def test_a_very_long_timeout_is_none():
    buffer = make()
    buffer.put(1, timeout=1e300)
    assert drained(buffer) == [1]


def test_many_producers_lose_and_double_nothing_and_each_keeps_its_order():
    buffer = make(factor=2, batch_size=16, threads=2)

    def produce(first):
        for number in range(first, first + 2000):
            buffer.put(number)

    producers = [threading.Thread(target=produce, args=(start * 10_000,)) for start in range(4)]
    for producer in producers:
        producer.start()

    def close():
        for producer in producers:
            producer.join()
        buffer.close()

    closer = threading.Thread(target=close)
    closer.start()
    emitted = [value for batch in buffer for value in batch.tolist()]
    closer.join()
    assert emitted[::2] == emitted[1::2]
    fresh = emitted[::2]
    assert sorted(fresh) == [start * 10_000 + n for start in range(4) for n in range(2000)]
    for start in range(4):
        mine = [value for value in fresh if value // 10_000 == start]
        assert mine == sorted(mine)


def test_rows_are_never_torn():
    """What others had: concurrent add and sample mixed two examples in one row."""
    buffer = make(pyecho.Field(3000, np.uint32), batch_size=8, capacity=20, factor=3, threads=3)

    def produce(value):
        for number in range(150):
            buffer.put(np.full(3000, value * 1000 + number, np.uint32))

    producers = [threading.Thread(target=produce, args=(value,)) for value in range(3)]

    def close():
        for producer in producers:
            producer.join()
        buffer.close()

    closer = threading.Thread(target=close)
    for thread in (*producers, closer):
        thread.start()
    rows = 0
    for batch in buffer:
        assert (batch == batch[:, :1]).all()
        rows += len(batch)
    closer.join()
    assert rows == 3 * 450


# ---------------------------------------------------------------- put_batch


def test_the_rows_of_a_batch_are_examples():
    buffer = make(batch_size=2)
    buffer.put_batch(np.arange(3))
    buffer.put_batch(np.arange(0))
    buffer.put_batch(np.arange(3, 4))
    assert drained(buffer) == [0, 1, 2, 3]


def test_put_batch_that_times_out_says_how_many_rows_were_taken():
    buffer = make()
    with pytest.raises(pyecho.PutTimeout, match=r"\((\d+) of 1000 rows were taken\)") as raised:
        buffer.put_batch(np.arange(1000), timeout=0.1)
    taken = int(str(raised.value).split("(")[1].split()[0])
    assert drained(buffer) == list(range(taken))


def test_a_wrong_batch_takes_nothing():
    buffer = make({"x": pyecho.Field(2, float), "y": pyecho.Field((), int)})
    for wrong in (
        {"x": np.zeros((3, 2)), "y": np.zeros(2, int)},
        {"x": np.zeros((3, 3)), "y": np.zeros(3, int)},
        {"x": np.zeros((3, 2)), "y": 5},
        {"x": np.zeros((3, 2))},
    ):
        with pytest.raises(pyecho.SpecMismatch):
            buffer.put_batch(wrong)
    assert buffer.stats().fresh == 0


# ---------------------------------------------------------------- reserve


SPEC = {"x": pyecho.Field(2, np.float32), "y": pyecho.Field((), int)}


def test_a_reservation_is_written_in_place_and_committed_by_its_block():
    buffer = make(SPEC, batch_size=2)
    for number in range(2):
        with buffer.reserve() as views:
            assert views["x"].shape == (2,)
            assert views["x"].dtype == np.float32
            assert views["y"].shape == ()
            views["x"][...] = number
            views["y"][...] = 10 * number
    buffer.close()
    [batch] = buffer
    assert batch["x"].tolist() == [[0, 0], [1, 1]]
    assert batch["y"].tolist() == [0, 10]


def test_an_exception_in_the_block_aborts_and_passes_through():
    buffer = make()
    with pytest.raises(ZeroDivisionError), buffer.reserve() as view:  # noqa: PT012
        view[...] = 1
        raise ZeroDivisionError
    with buffer.reserve() as view:
        view[...] = 2
    assert buffer.stats().fresh == 1
    assert drained(buffer) == [2]


def test_aborted_slots_come_back():
    buffer = make()
    for _ in range(1000):
        buffer.reserve(timeout=5).abort()
    buffer.put(1)
    assert drained(buffer) == [1]


def test_a_forgotten_reservation_holds_nothing_up():
    buffer = make()
    for _ in range(1000):
        buffer.reserve(timeout=5)
    buffer.put(1)
    assert drained(buffer) == [1]


def test_order_is_that_of_the_reservations_not_of_the_commits():
    buffer = make(batch_size=3, capacity=1)
    reservations = [buffer.reserve() for _ in range(2)]
    for number in (1, 0):
        reservations[number].views[...] = number
        reservations[number].commit()
    assert drained(buffer) == [0, 1]


@pytest.mark.parametrize("first", ["commit", "abort"])
@pytest.mark.parametrize("then", ["commit", "abort", "views"])
def test_a_reservation_is_finished_once(first, then):
    reservation = make().reserve()
    getattr(reservation, first)()
    with pytest.raises(pyecho.Closed, match="committed or aborted"):  # noqa: PT012
        result = getattr(reservation, then)
        result()


def test_reserve_times_out_on_a_full_buffer():
    buffer = make()
    fill(buffer)
    with pytest.raises(pyecho.PutTimeout):
        buffer.reserve(timeout=0.05)


def test_reserve_needs_a_spec_of_arrays_and_numbers():
    buffer = make({"x": pyecho.Field(2, float), "name": pyecho.Field((), object)})
    with pytest.raises(pyecho.ConfigError, match=r"reference; use put\(\)"):
        buffer.reserve()


def test_a_reservation_made_before_close_may_still_be_committed():
    buffer = make()
    reservation = buffer.reserve()
    buffer.close()
    reservation.views[...] = 5
    reservation.commit()
    assert drained(buffer) == [5]
