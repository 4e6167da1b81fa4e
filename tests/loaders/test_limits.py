"""prefetch, threads, held and max_bytes: how far ahead, how many, how much."""

import itertools

import numpy as np
import pytest
from drivers import drivers, flat, loader_of

import pyecho

ROW = np.zeros(1024)  # 8 KiB
EXAMPLES = {"batch_size": 4, "shuffle_buffer": 8}


def least_bytes(driver, **arguments):
    """Return the bytes that a refusal says are needed."""
    with pytest.raises(
        pyecho.ConfigError,
        match=r"need .* bytes.*max_bytes is.*lower shuffle_.*or raise max_bytes",
    ) as error:
        next(iter(loader_of(driver, [ROW] * 40, max_bytes=0, **EXAMPLES, **arguments)))
    return int(str(error.value).split("(")[1].split()[0])


@drivers
def test_max_bytes_bounds_everything_and_a_refusal_says_exactly_what_is_needed(driver):
    least = least_bytes(driver)
    loader = loader_of(driver, [ROW] * 40, max_bytes=least, **EXAMPLES)
    assert sum(len(batch) for batch in loader) == 80
    with pytest.raises(pyecho.ConfigError, match="but max_bytes is"):
        next(iter(loader_of(driver, [ROW] * 40, max_bytes=least - 1, **EXAMPLES)))
    assert least_bytes(driver, prefetch=6) > least_bytes(driver, prefetch=5)


@drivers
@pytest.mark.parametrize("shuffle_buffer", [0, 8])
def test_batch_echoing_checks_the_first_item_against_max_bytes(driver, shuffle_buffer):
    items = max(1, shuffle_buffer) + 3
    source = [{"x": ROW}] * 20
    for bytes_left, emitted in ((0, 40), (-1, None)):
        loader = loader_of(
            driver,
            source,
            2,
            shuffle_buffer=shuffle_buffer,
            prefetch=3,
            max_bytes=items * ROW.nbytes + bytes_left,
        )
        if emitted is not None:
            assert len(list(loader)) == emitted
            continue
        with pytest.raises(pyecho.ConfigError, match=rf"{items} items.*{ROW.nbytes} bytes"):
            next(iter(loader))


@drivers
def test_default_shuffle_buffer_is_ten_batches_and_none_in_batch_echoing(driver):
    for arguments, items in (({"batch_size": 4}, 40), ({}, 0)):
        told = {"shuffle_buffer": items, **arguments}
        ours, theirs = (flat(loader_of(driver, range(90), 2, **each)) for each in (arguments, told))
        assert ours == theirs


def test_short_source_needs_no_more_memory_than_it_has_items():
    options = {"batch_size": 4, "max_bytes": 2**21, "shuffle_buffer": 2**20}
    assert sum(map(len, pyecho.EchoLoader([ROW] * 30, 2, **options))) == 60


@pytest.mark.parametrize("held", [1, 2, 5])
def test_buffer_sets_memory_aside_for_as_many_batches_as_are_said_to_be_held(held):
    buffer = pyecho.EchoBuffer(pyecho.Field((), int), batch_size=1, factor=20, held=held, threads=1)
    buffer.put(1)
    buffer.close()
    batches = iter(buffer)
    before = buffer.stats().host_allocations
    kept = list(itertools.islice(batches, held))
    assert buffer.stats().host_allocations == before
    assert buffer.stats().outstanding_leases == len(kept)
