"""stats(): what was taken, what was emitted, and where the time went."""

import math

import numpy as np
import pytest

import pyecho


def test_before_anything_happened():
    stats = pyecho.EchoLoader(range(3)).stats()
    assert (stats.fresh, stats.emitted, stats.batches) == (0, 0, 0)
    assert math.isnan(stats.effective_factor)
    assert math.isnan(stats.ratio)
    assert math.isnan(stats.recommended_factor)


@pytest.mark.parametrize("batch_size", [None, 4])
def test_fresh_and_emitted_count_items_and_uses_over_all_epochs(batch_size):
    loader = pyecho.EchoLoader(np.arange(21), 3, batch_size=batch_size, shuffle_buffer=5)
    for epoch in (1, 2, 3):
        batches = sum(1 for _ in loader)
        stats = loader.stats()
        assert stats.fresh == 21 * epoch
        assert stats.emitted == 63 * epoch
        assert stats.batches == batches * epoch
        assert stats.effective_factor == 3


def test_the_effective_factor_of_a_fraction_is_what_was_drawn():
    loader = pyecho.EchoLoader(np.arange(1000), 1.5, batch_size=10)
    emitted = sum(len(batch) for batch in loader)
    assert loader.stats().effective_factor == emitted / 1000


def test_a_dropped_last_batch_was_not_emitted():
    loader = pyecho.EchoLoader(np.arange(5), 1, batch_size=4, drop_last=True)
    list(loader)
    assert (loader.stats().fresh, loader.stats().emitted) == (5, 4)


def test_counts_during_an_epoch():
    loader = pyecho.EchoLoader(np.arange(100), 2, batch_size=4)
    batches = iter(loader)
    for number in range(1, 4):
        next(batches)
        assert loader.stats().batches == number
        assert loader.stats().emitted == 4 * number
    assert 6 <= loader.stats().fresh <= 100


def test_an_abandoned_epoch_is_counted_as_far_as_it_went():
    loader = pyecho.EchoLoader(range(100), 2)
    batches = iter(loader)
    for _ in range(5):
        next(batches)
    del batches
    assert loader.stats().emitted == 5
    list(loader)
    assert loader.stats().emitted == 205


@pytest.mark.parametrize("augment", [None, lambda batch, rng: batch])
def test_times_split_between_source_and_consumer(augment):
    loader = pyecho.EchoLoader(np.arange(100), 2, batch_size=4, augment=augment)
    for _ in loader:
        sum(range(1000))
    stats = loader.stats()
    assert stats.source_seconds > 0
    assert stats.consumer_wait_seconds > 0
    assert stats.downstream_seconds > 0
    expected = (stats.source_seconds / stats.fresh) / (stats.downstream_seconds / stats.emitted)
    assert stats.ratio == pytest.approx(expected)
    assert stats.recommended_factor == max(1, stats.ratio)


def test_times_only_grow():
    loader = pyecho.EchoLoader(range(50), 2)
    last = loader.stats()
    for _ in range(3):
        for _ in loader:
            stats = loader.stats()
            for name in ("source_seconds", "consumer_wait_seconds", "downstream_seconds", "fresh"):
                assert getattr(stats, name) >= getattr(last, name)
            last = stats


def test_a_consumer_that_works_longer_than_the_source_needs_no_echoing():
    stats = pyecho.EchoStats(fresh=10, emitted=20, source_seconds=1, downstream_seconds=20)
    assert stats.ratio == pytest.approx(0.1)
    assert stats.recommended_factor == 1


def test_the_ratio_is_the_papers_r():
    """t_up per item over t_down per use: 10 items in 6 s, 20 uses in 2 s."""
    stats = pyecho.EchoStats(fresh=10, emitted=20, source_seconds=6, downstream_seconds=2)
    assert stats.ratio == pytest.approx(6)


def test_gathered_bytes_are_those_of_the_emitted_rows():
    loader = pyecho.EchoLoader(np.zeros((10, 3), np.float32), 2, batch_size=4)
    for _ in loader:
        pass
    assert loader.stats().bytes_gathered == 20 * 12


def test_occupancy_is_a_fraction_of_the_pool():
    loader = pyecho.EchoLoader(np.arange(100), 2, batch_size=4, shuffle_buffer=10)
    seen = [loader.stats().occupancy for _ in loader]
    assert all(0 <= value <= 1 for value in seen)
    assert max(seen) > 0.5
    assert loader.stats().occupancy == 0


def test_outstanding_leases_are_the_batches_that_are_kept():
    loader = pyecho.EchoLoader(np.arange(100), 2, batch_size=4)
    batches = iter(loader)
    kept = [next(batches), next(batches)]
    assert loader.stats().outstanding_leases == 2
    view = kept[0][1:]
    del kept
    assert loader.stats().outstanding_leases == 1
    del view
    assert loader.stats().outstanding_leases == 0


def test_stats_of_a_buffer():
    buffer = pyecho.EchoBuffer(pyecho.Field(3, np.float32), batch_size=2, factor=2)
    buffer.put(np.zeros(3, np.float32))
    buffer.close()
    [batch] = buffer
    stats = buffer.stats()
    assert (stats.fresh, stats.emitted, stats.batches) == (1, 2, 1)
    assert stats.source_seconds == 0
    assert stats.outstanding_leases == 1
    assert stats.host_allocations > 1
    del batch


def test_stats_cannot_be_changed():
    with pytest.raises(AttributeError):
        pyecho.EchoStats().fresh = 1
