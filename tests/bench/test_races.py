"""The native contestants: the same work on both sides, and latencies of every hand-over."""

import pytest

from pyecho import _core


@pytest.mark.parametrize("threads", [0, 1, 3])
@pytest.mark.parametrize(
    ("row_bytes", "capacity", "factor", "fresh"),
    [(1, 1, 1, 1), (64, 7, 3, 1000), (5000, 40, 1, 100), (3072, 100, 4, 99)],
)
def test_both_sides_run(row_bytes, capacity, factor, fresh, threads):
    race = _core.GatherRace(
        row_bytes=row_bytes,
        batch_size=5,
        capacity=capacity,
        factor=factor,
        fresh=fresh,
        threads=threads,
    )
    for _ in range(2):
        assert race.memcpy_seconds(max(1, threads)) > 0
        assert race.memcpy_seconds(threads + 2) > 0
        assert race.echo_seconds() > 0  # raises if a use is missing


def test_an_unknown_hand_over_is_refused():
    with pytest.raises(ValueError, match="got 'pigeon'"):
        _core.hand_over_ns("pigeon", 1, 1)


@pytest.mark.parametrize("stage", ["condition", "queue", "buffer"])
def test_every_hand_over_is_timed(stage):
    times = _core.hand_over_ns(stage, 20, 100_000)
    assert len(times) == 20
    assert all(time > 0 for time in times)
