"""Costs of echoing, each group beside its bare counterpart, by pytest-benchmark.

    pytest benchmarks --benchmark-only --benchmark-autosave
    pytest benchmarks --benchmark-only --benchmark-compare

Contestants run one after the other. With `pyecho bench` they take turns, so its ratios hold on a
noisy machine as well. Where rows are copied, extra_info has the bytes that came out in a round, and
GB/s.
"""

import collections
import itertools

import numpy as np
import pytest

import pyecho

FOREVER = 1 << 31
ITEMS = 10_000
CAPACITIES = {256: 4096, 3072: 4096, 150_528: 512}
"""Rows in the pool, by the bytes of a row."""
BATCHES = {256: 256, 3072: 64, 150_528: 4}
"""Batches in a round: more than a loader makes ahead."""
PUTS = {256: 1000, 3072: 1000, 150_528: 50}
"""Examples in a round."""


def grouped(group, values):
    """Return parameters with a group for each."""
    return [
        pytest.param(value, marks=pytest.mark.benchmark(group=group.format(value)), id=str(value))
        for value in values
    ]


def record(benchmark, size_bytes):
    """Record the bytes of a round, and how fast they came."""
    benchmark.extra_info["bytes"] = size_bytes
    if benchmark.stats:  # none with --benchmark-disable
        benchmark.extra_info["GB/s"] = 1e-9 * size_bytes / benchmark.stats.stats.median


def measure(benchmark, endless, count):
    """Time how long `count` items of an endless iterable take."""
    iterator = iter(endless)

    def take():
        collections.deque(itertools.islice(iterator, count), maxlen=0)

    take()
    benchmark(take)
    assert next(iterator) is not None, "it has an end"


def epochs(loader):
    return itertools.chain.from_iterable(itertools.repeat(loader))


def bare_generator(items, factor):
    for item in itertools.cycle(items):
        for _ in range(factor):
            yield item


# Repeats


@pytest.mark.benchmark(group=f"{ITEMS:,} repeats")
class TestRepeats:
    def test_bare_generator(self, benchmark):
        measure(benchmark, bare_generator([object()], FOREVER), ITEMS)

    @pytest.mark.parametrize("among", [1, 16, 1000, 100_000])
    def test_loader_shuffled_among(self, benchmark, among):
        items = [object() for _ in range(among)]
        factor = max(10, 1_000_000 // among)
        measure(benchmark, epochs(pyecho.EchoLoader(items, factor, shuffle_buffer=among)), ITEMS)


# Fresh items


@pytest.mark.parametrize("factor", grouped(f"{ITEMS:,} uses, e = {{}}", [1, 2, 4, 16]))
class TestFreshItems:
    def test_bare_generator(self, benchmark, factor):
        measure(benchmark, bare_generator([np.zeros(16)], factor), ITEMS)

    def test_loader(self, benchmark, factor):
        items = itertools.repeat(np.zeros(16))
        measure(benchmark, pyecho.EchoLoader(items, factor), ITEMS)


# Batches of examples


def bare_copies(row_bytes, factor=4, batch_size=256):
    """Copy each fresh row into a pool once, and each use out of it."""
    capacity, fresh = CAPACITIES[row_bytes], batch_size // factor
    source, pool = (np.ones((capacity, row_bytes), np.uint8) for _ in range(2))
    order = np.random.default_rng(0).integers(capacity, size=(64, batch_size))
    batch = np.ones((batch_size, row_bytes), np.uint8)
    for chosen, start in zip(
        itertools.cycle(order), itertools.cycle(range(0, capacity, fresh)), strict=True
    ):
        pool[start : start + fresh] = source[start : start + fresh]
        np.take(pool, chosen, axis=0, out=batch, mode="clip")
        yield batch


def loader_batches(row_bytes, factor=4, batch_size=256, threads=None):
    """Return a loader's batches without end, over rows in memory."""
    capacity = CAPACITIES[row_bytes]
    loader = pyecho.EchoLoader(
        np.ones((2 * capacity, row_bytes), np.uint8),
        factor,
        batch_size=batch_size,
        shuffle_buffer=capacity,
        epochs=FOREVER,
        threads=threads,
    )
    return epochs(loader)


def measure_rows(benchmark, batches, row_bytes, batch_size=256):
    """Time batches of rows without end."""
    measure(benchmark, batches, BATCHES[row_bytes])
    record(benchmark, BATCHES[row_bytes] * batch_size * row_bytes)


@pytest.mark.parametrize("row_bytes", grouped("batches of 256 rows of {:,} B", BATCHES))
class TestBatches:
    def test_bare_copies(self, benchmark, row_bytes):
        measure_rows(benchmark, bare_copies(row_bytes), row_bytes)

    def test_loader(self, benchmark, row_bytes):
        measure_rows(benchmark, loader_batches(row_bytes), row_bytes)


@pytest.mark.parametrize("factor", grouped("batches of rows of 3,072 B, e = {}", [1, 2, 8, 16]))
class TestFactors:
    def test_bare_copies(self, benchmark, factor):
        measure_rows(benchmark, bare_copies(3072, factor), 3072)

    def test_loader(self, benchmark, factor):
        measure_rows(benchmark, loader_batches(3072, factor), 3072)


@pytest.mark.parametrize("size", grouped("batches of {} rows of 3,072 B", [16, 64, 1024]))
class TestBatchSizes:
    def test_bare_copies(self, benchmark, size):
        measure_rows(benchmark, bare_copies(3072, batch_size=size), 3072, size)

    def test_loader(self, benchmark, size):
        measure_rows(benchmark, loader_batches(3072, batch_size=size), 3072, size)


@pytest.mark.benchmark(group="batches of 256 rows of 3,072 B, by threads")
@pytest.mark.parametrize("threads", [0, 1, 2])
def test_threads(benchmark, threads):
    measure_rows(benchmark, loader_batches(3072, threads=threads), 3072)


# Puts


@pytest.mark.parametrize("row_bytes", grouped("puts of {:,} B and a label", PUTS))
class TestPut:
    def test_bare_assignment(self, benchmark, row_bytes):
        count, row = PUTS[row_bytes], np.ones(row_bytes, np.uint8)
        slots, labels = np.ones((count, row_bytes), np.uint8), np.ones(count, np.int64)

        def assign():
            for number in range(count):
                slots[number] = row
                labels[number] = 3

        benchmark(assign)
        record(benchmark, count * (row_bytes + 8))

    def test_put(self, benchmark, row_bytes):
        count, example = PUTS[row_bytes], {"x": np.ones(row_bytes, np.uint8), "y": 3}

        def new_buffer():
            options = {"batch_size": 64, "factor": 1, "shuffle_buffer": count}
            return (pyecho.EchoBuffer(pyecho.spec_of(example), **options),), {}

        def put(buffer):
            for _ in range(count):
                buffer.put(example)

        benchmark.pedantic(put, setup=new_buffer, rounds=50, warmup_rounds=1)
        record(benchmark, count * (row_bytes + 8))
