"""The native contestants: the same work on both sides, and latencies of every hand-over."""

import pytest

from pyecho import _core


@pytest.mark.parametrize("threads", [0, 3])
@pytest.mark.parametrize(
    ("row_bytes", "capacity", "factor", "fresh"), [(64, 7, 3, 1000), (3072, 100, 4, 99)]
)
def test_both_sides_run(row_bytes, capacity, factor, fresh, threads):
    sizes = {"row_bytes": row_bytes, "batch_size": 5, "capacity": capacity, "factor": factor}
    race = _core.GatherRace(**sizes, fresh=fresh, threads=threads)
    for _ in range(2):
        assert race.memcpy_seconds(threads + 1) > 0
        assert race.echo_seconds() > 0  # raises if a use is missing


@pytest.mark.parametrize("stage", ["condition", "queue", "buffer"])
def test_every_hand_over_is_timed(stage):
    times = _core.hand_over_ns(stage, 20, 100_000)
    assert len(times) == 20
    assert all(time > 0 for time in times)
