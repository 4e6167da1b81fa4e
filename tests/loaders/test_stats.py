"""stats(): what was taken, what was emitted, and where the time went."""

import math
import time

import numpy as np
import pytest
from drivers import drivers, levels, loader_of, waiting_drivers
from waiting import wait_until

import pyecho


def test_stats_before_anything_happened():
    stats = pyecho.EchoLoader(range(3)).stats()
    assert stats == pyecho.EchoStats()
    assert all(map(math.isnan, (stats.effective_factor, stats.ratio, stats.recommended_factor)))
    with pytest.raises(AttributeError):
        stats.fresh = 1


@drivers
@levels
def test_times_split_between_source_and_consumer_and_only_grow(driver, batch_size):
    loader = loader_of(driver, range(100), 2, batch_size=batch_size)
    last = loader.stats()
    for _ in range(2):
        for batch in loader:
            sum(range(1000))
            stats = loader.stats()
            for name in ("source_seconds", "consumer_wait_seconds", "downstream_seconds", "fresh"):
                assert getattr(stats, name) >= getattr(last, name)
            last = stats
            del batch
    assert min(last.source_seconds, last.consumer_wait_seconds, last.downstream_seconds) > 0
    expected = (last.upstream_seconds / last.read) / (last.downstream_seconds / last.emitted)
    assert last.ratio == pytest.approx(expected)
    assert last.recommended_factor == max(1, last.ratio)


def test_ratio_of_a_buffer_whose_source_is_not_seen_is_unknown():
    buffer = pyecho.EchoBuffer(pyecho.spec_of(np.zeros(3)), batch_size=2)
    buffer.put_batch(np.zeros((8, 3)))
    buffer.close()
    assert sum(len(batch) for batch in buffer) == 16
    stats = buffer.stats()
    assert stats.downstream_seconds > 0
    assert math.isnan(stats.ratio)
    assert math.isnan(stats.recommended_factor)
    assert "R is not known" in str(stats)
    assert "echo/R" not in stats.scalars()


def test_ratio_is_the_papers_r():
    """t_up per item over t_down per use: 10 items in 6 s, 20 uses in 2 s."""
    stats = pyecho.EchoStats(read=10, emitted=20, source_seconds=6, downstream_seconds=2)
    assert stats.ratio == stats.recommended_factor == pytest.approx(6)
    stats = pyecho.EchoStats(read=10, emitted=20, source_seconds=1, downstream_seconds=20)
    assert (stats.ratio, stats.recommended_factor) == (pytest.approx(0.1), 1)


def test_ratio_counts_what_the_source_makes_ahead():
    stats = pyecho.EchoStats(
        read=10, emitted=20, source_seconds=1, upstream_seconds=6, downstream_seconds=2
    )
    assert stats.ratio == stats.recommended_factor == pytest.approx(6)


def test_share_of_fresh_uses():
    assert pyecho.EchoStats(fresh=10, emitted=40).fresh_share == 0.25
    assert math.isnan(pyecho.EchoStats(fresh=10).fresh_share)


def test_items_made_ahead_while_the_loader_waits_are_not_free():
    """How they count is said in cpp/source_clock_test.cpp, by a clock that is set by hand."""

    def source():
        for number in range(200):
            if number < 20:  # the pool fills
                time.sleep(0.001)
            yield object()

    def is_credited():
        loader = pyecho.EchoLoader(source(), 2, shuffle_buffer=20)
        for _ in loader:
            time.sleep(0.0005)  # while the feeder comes to the end of its room, sooner or later
        stats = loader.stats()
        assert stats.upstream_seconds >= 0.99 * stats.source_seconds
        return stats.upstream_seconds > 1.01 * stats.source_seconds

    assert wait_until(is_credited)


def test_bytes_leases_and_allocations_of_a_buffer():
    buffer = pyecho.EchoBuffer(
        pyecho.Field(3, np.float32), batch_size=2, factor=3, shuffle_buffer=1
    )
    buffer.put_batch(np.zeros((2, 3), np.float32))
    buffer.close()
    batches = iter(buffer)
    kept = [next(batches), next(batches)]
    assert buffer.stats().outstanding_leases == 2
    view = kept[0][1:]
    del kept
    assert buffer.stats().outstanding_leases == 1
    del view
    list(batches)
    stats = buffer.stats()
    assert (stats.fresh, stats.emitted, stats.batches) == (2, 6, 3)
    assert stats.bytes_gathered == 6 * 12
    assert (stats.source_seconds, stats.outstanding_leases) == (0, 0)
    assert stats.host_allocations > 1


def test_scalars_are_what_is_known():
    loader = pyecho.EchoLoader(list(range(12)), 3, batch_size=4)
    assert loader.stats().scalars() == {"echo/occupancy": 0.0}
    for _ in loader:
        pass
    scalars = loader.stats().scalars()
    assert scalars["echo/effective_factor"] == 3
    assert scalars["echo/fresh_share"] == 1 / 3
    assert 0 <= scalars["echo/wait_share"] <= 1
    assert scalars["echo/R"] > 0


def test_occupancy_is_the_share_of_the_pool_that_items_fill():
    loader = pyecho.EchoLoader(range(40), 4, batch_size=2, shuffle_buffer=10, threads=0)
    shares = [loader.stats().occupancy for _ in loader]
    assert shares[0] == 1
    assert all(share >= 0.8 for share in shares[:60]), "an item that has left is replaced"
    assert shares[-1] == 0, "at the end the pool drains"


def test_stats_in_words():
    stats = pyecho.EchoStats(
        fresh=1234, emitted=4936, batches=617, read=1300,
        source_seconds=13, consumer_wait_seconds=6, downstream_seconds=2,
    )  # fmt: skip
    assert str(stats).splitlines() == [
        "4,936 uses of 1,234 items in 617 batches: effective factor 4, 25% fresh",
        "R = 24.7: the source takes 10 ms an item, the consumer 405 us a use",
        "the consumer waited 6 s of 8 s",
    ]


@waiting_drivers
@pytest.mark.parametrize("options", [{}, {"batch_size": 4}, {"batch_size": 4, "drop_last": True}])
def test_stats_count_what_the_consumer_has_had(driver, options):
    """Also between two batches, after epochs that were left, and with links that work ahead."""
    loader = loader_of(driver, range(41), 3, shuffle_buffer=6, with_info=True, **options)
    had = np.zeros(3, int)
    for stop in (None, 3, None, 1):
        for number, (_, info) in enumerate(loader, 1):
            use = np.atleast_1d(info.use)
            had += (np.count_nonzero(use == 0), len(use), 1)
            stats = loader.stats()
            assert [stats.fresh, stats.emitted, stats.batches] == had.tolist()
            if number == stop:
                break
