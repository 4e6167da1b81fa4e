"""The producers' side of a buffer: put, put_batch, reserve, commit, abort, timeouts."""

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
            buffer.put(count, timeout=0.2 if count > 3 else 5)  # a worker may free a slot yet
        except pyecho.PutTimeout:
            return count
        count += 1


# ---------------------------------------------------------------- put


def test_put_keeps_the_order_and_the_example_may_be_changed_after_it():
    buffer, row = make(pyecho.Field(3, int)), np.arange(3)
    for _ in range(3):
        assert buffer.put(row) is None
        row += 1
    assert drained(buffer) == [[0, 1, 2], [1, 2, 3], [2, 3, 4]]


def test_wrong_example_takes_nothing():
    buffer = make({"x": pyecho.Field(2, float), "y": pyecho.Field((), int)})
    good = {"x": np.zeros(2), "y": 1}
    buffer.put(good)
    for wrong in ("text", {"x": np.zeros(2)}, good | {"y": 1.5}, good | {"x": np.zeros(3)}):
        with pytest.raises(pyecho.SpecMismatch):
            buffer.put(wrong)
    batch = {"x": np.zeros((3, 2)), "y": np.zeros(3, int)}
    for wrong in ({"y": np.zeros(2, int)}, {"x": np.zeros((3, 3))}, {"y": 5}):
        with pytest.raises(pyecho.SpecMismatch):
            buffer.put_batch(batch | wrong)
    buffer.put(good)
    assert buffer.stats().read == 2


@pytest.mark.parametrize("timeout", [0, -1, 0.05])
@pytest.mark.parametrize("way", ["put", "put_batch", "reserve"])
def test_full_buffer_times_out_and_takes_nothing(way, timeout):
    """A bug of others: a deadlock with one thread on both sides. Here that thread is told."""
    buffer = make()
    count = fill(buffer)
    with pytest.raises(pyecho.PutTimeout, match=r"no slot became free within .*consumer"):
        if way == "reserve":
            buffer.reserve(timeout=timeout)
        else:
            getattr(buffer, way)(-1 if way == "put" else np.array([-1]), timeout=timeout)
    assert drained(buffer) == list(range(count))


def test_timeout_may_be_very_long_and_must_be_a_number():
    buffer = make()
    buffer.put(1, timeout=1e300)
    with pytest.raises(pyecho.ConfigError, match="got nan"):
        buffer.put(2, timeout=float("nan"))
    assert drained(buffer) == [1]


# ---------------------------------------------------------------- put_batch


def test_put_batch_that_times_out_says_how_many_rows_were_taken():
    buffer = make()
    with pytest.raises(pyecho.PutTimeout, match=r"\((\d+) of 1000 rows were taken\)") as raised:
        buffer.put_batch(np.arange(1000), timeout=0.1)
    taken = int(str(raised.value).split("(")[1].split()[0])
    assert drained(buffer) == list(range(taken))


# ---------------------------------------------------------------- reserve


def test_reservation_is_written_in_place_and_committed_by_its_block():
    spec = {"x": pyecho.Field(2, np.float32), "y": pyecho.Field((), int)}
    buffer = make(spec, batch_size=2, shuffle_buffer=1)
    for number in range(2):
        with buffer.reserve() as views:
            assert (views["x"].shape, views["x"].dtype) == ((2,), np.float32)
            views["x"][...] = number
            views["y"][...] = 10 * number
        assert not views["x"].flags.writeable
    buffer.close()
    [batch] = buffer
    assert batch["x"].tolist() == [[0, 0], [1, 1]]
    assert batch["y"].tolist() == [0, 10]


def test_exception_in_the_block_aborts_and_passes_through():
    buffer = make()
    with pytest.raises(ZeroDivisionError), buffer.reserve() as view:
        view[...] = 1
        raise ZeroDivisionError
    with buffer.reserve() as view:
        view[...] = 2
    assert buffer.stats().read == 1
    assert drained(buffer) == [2]


@pytest.mark.parametrize("how", ["aborted", "forgotten"])
def test_slots_that_were_not_committed_come_back(how):
    buffer = make(threads=1)  # or a consumer that waits
    for _ in range(1000):
        reservation = buffer.reserve(timeout=5)
        if how == "aborted":
            reservation.abort()
    del reservation
    buffer.put(1)
    assert drained(buffer) == [1]


def test_order_is_that_of_the_reservations_also_after_close():
    buffer = make(batch_size=3, shuffle_buffer=1)
    reservations = [buffer.reserve() for _ in range(2)]
    buffer.close()
    for number in (1, 0):
        reservations[number].views[...] = number
        reservations[number].commit()
    assert drained(buffer) == [0, 1]


@pytest.mark.parametrize("first", ["commit", "abort"])
@pytest.mark.parametrize("then", ["commit", "abort", "views"])
def test_reservation_is_finished_once(first, then):
    reservation = make().reserve()
    getattr(reservation, first)()
    with pytest.raises(pyecho.Closed, match="committed or aborted"):
        getattr(reservation, then)()


def test_reserve_needs_a_spec_of_arrays_and_numbers():
    buffer = make({"x": pyecho.Field(2, float), "name": pyecho.Field((), object)})
    with pytest.raises(pyecho.ConfigError, match=r"reference; use put\(\)"):
        buffer.reserve()


# ---------------------------------------------------------------- memory and delivery


@pytest.mark.parametrize("threads", [0, 2])
def test_memory_that_cannot_be_had_is_a_memory_error(threads):
    with pytest.raises(MemoryError, match=r"the system has no memory.*lower shuffle_buffer"):
        make(pyecho.Field(2**30, float), shuffle_buffer=2**14, threads=threads)
    with pytest.raises(pyecho.ConfigError, match="lower shuffle_buffer"):
        make(pyecho.Field((2**40, 2**18), float), batch_size=2**20, threads=threads)


@pytest.mark.parametrize("threads", [0, 2])
def test_batch_whose_delivery_fails_comes_with_the_next_call(threads):
    calls = []

    def deliver(array, leaf):
        calls.append(leaf)
        if len(calls) in (1, 4, 5):
            raise ZeroDivisionError
        return array

    buffer = make(batch_size=2, shuffle_buffer=1, factor=2, threads=threads, from_array=deliver)
    for number in range(3):
        buffer.put(number)
    buffer.close()
    batches, emitted = iter(buffer), []
    for _ in range(6):
        try:
            emitted.append(next(batches).tolist())
        except ZeroDivisionError:
            emitted.append("error")
    assert emitted == ["error", [0, 0], [1, 1], "error", "error", [2, 2]]
