"""prefetch, threads and max_bytes: how far ahead, how many, how much."""

import itertools

import numpy as np
import pytest

import pyecho

ROW = np.zeros(1024)  # 8 KiB
PAGE = 4096


def loader_of(source, **arguments):
    return pyecho.EchoLoader(source, 2, batch_size=4, shuffle_buffer=8, **arguments)


def least_bytes(**arguments):
    """What the message of a refusal says is needed."""
    with pytest.raises(pyecho.ConfigError, match="but max_bytes is") as error:
        iter(loader_of([ROW] * 40, max_bytes=0, **arguments))
    return int(str(error.value).split("(")[1].split()[0])


def test_a_max_bytes_that_is_too_small_says_what_is_needed_and_what_to_lower():
    with pytest.raises(
        pyecho.ConfigError, match=r"need .* bytes.*max_bytes is.*lower capacity.*or raise max_bytes"
    ):
        iter(loader_of([ROW], max_bytes=1000))


def test_exactly_what_is_needed_is_enough():
    loader = loader_of([ROW] * 40, max_bytes=least_bytes())
    assert sum(len(batch) for batch in loader) == 80


def test_one_byte_less_is_not_enough():
    with pytest.raises(pyecho.ConfigError):
        iter(loader_of([ROW] * 40, max_bytes=least_bytes() - 1))


def test_more_prefetch_needs_more():
    assert least_bytes(prefetch=6) > least_bytes(prefetch=5)


def test_slots_are_as_large_as_their_contents():
    """What others had: sizes rounded to powers of two doubled the memory."""
    pool, bytes_of_row = 1000, ROW.nbytes + 64
    row = np.zeros(bytes_of_row, np.uint8)
    with pytest.raises(pyecho.ConfigError) as error:
        iter(pyecho.EchoLoader([row], 2, batch_size=4, shuffle_buffer=pool, max_bytes=0))
    needed = int(str(error.value).split("(")[1].split()[0])
    assert needed < 1.05 * pool * bytes_of_row


@pytest.mark.parametrize("shuffle_buffer", [0, 8])
def test_batch_echoing_checks_the_first_item_against_max_bytes(shuffle_buffer):
    arguments = {"shuffle_buffer": shuffle_buffer, "prefetch": 3}
    items = max(1, shuffle_buffer) + 3
    loader = pyecho.EchoLoader([{"x": ROW}], 2, max_bytes=items * ROW.nbytes, **arguments)
    assert len(list(loader)) == 2
    with pytest.raises(pyecho.ConfigError, match=rf"{items} items.*{ROW.nbytes} bytes.*max_bytes"):
        iter(pyecho.EchoLoader([{"x": ROW}], 2, max_bytes=items * ROW.nbytes - 1, **arguments))


def test_a_capacity_beyond_max_bytes_is_refused_before_memory_is_touched():
    with pytest.raises(pyecho.ConfigError, match="max_bytes"):
        iter(pyecho.EchoLoader([ROW], 2, batch_size=4, shuffle_buffer=2**29, max_bytes=2**30))


def test_memory_does_not_grow_for_a_consumer_that_drops_its_batches():
    """What others had: host allocations in mid-training."""
    loader = loader_of([ROW] * 2000)
    batches = iter(loader)
    before = loader.stats().host_allocations
    for _ in batches:
        pass
    assert loader.stats().host_allocations == before


@pytest.mark.parametrize("held", [1, 2, 5])
def test_a_buffer_sets_memory_aside_for_as_many_batches_as_are_said_to_be_held(held):
    buffer = pyecho.EchoBuffer(pyecho.Field((), int), batch_size=1, factor=20, held=held, threads=1)
    buffer.put(1)
    buffer.close()
    batches = iter(buffer)
    before = buffer.stats().host_allocations
    kept = list(itertools.islice(batches, held))
    assert buffer.stats().host_allocations == before
    assert buffer.stats().outstanding_leases == len(kept)


@pytest.mark.parametrize("prefetch", [1, 2, 50])
@pytest.mark.parametrize("threads", [1, 3, None])
def test_any_prefetch_and_threads(prefetch, threads):
    loader = loader_of([ROW] * 10, prefetch=prefetch, threads=threads)
    assert sum(len(batch) for batch in loader) == 20
