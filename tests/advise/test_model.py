"""Advice for given times."""

import json

import pytest

from pyecho.tools.advise.model import Times, advice_on

FAST = {"upstream": 60e-3, "downstream": 10e-3, "cycle": 10e-3}


@pytest.mark.parametrize(
    ("changes", "factor", "steps_per_second", "idle"),
    [
        ({}, 1, 1 / 60e-3, 5 / 6),
        ({}, 3, 1 / 20e-3, 1 / 2),
        ({}, 8, 1 / 10e-3, 0),
        ({"cycle": 25e-3, "augmentation": 50e-3, "augment_workers": 2}, 2, 1 / 30e-3, 2 / 3),
        ({"cycle": 25e-3, "augmentation": 50e-3, "augment_workers": 2}, 8, 1 / 25e-3, 0.6),
        ({"serial": True}, 2, 1 / 40e-3, 3 / 4),
        ({"downstream": 0.0, "cycle": 0.0}, 4, 1 / 15e-3, None),
    ],
)
def test_eq_1_on_the_times_of_the_parts(changes, factor, steps_per_second, idle):
    advice = advice_on(Times(**(FAST | changes)), 2, steps=500)
    [found] = [each for each in advice.predictions if each.factor == factor]
    assert found.steps_per_second == pytest.approx(steps_per_second)
    assert found.idle_share == (None if idle is None else pytest.approx(idle))
    assert found.seconds == pytest.approx(500 / steps_per_second)


@pytest.mark.parametrize(
    ("factor", "changes", "limit", "change", "full"),
    [
        (2, {}, "source", "Raise factor to 6.0 for 3.0 times", 6),
        (5.9, {}, "source", "The factor fits", 6),
        (8, {}, "consumer", "factor=6.0 takes as many steps", 6),
        (6, {}, "consumer", "only a faster step", 6),
        (1, {"upstream": 2e-3}, "consumer", "only a faster step", 1),
        (1, {"serial": True}, "source", "Leave out threads=0", None),
        (1, {"downstream": 0.0, "cycle": 0.0}, "source", "Pass a step function", None),
        (
            4,
            {"cycle": 45e-3, "augmentation": 90e-3, "augment_workers": 2},
            "augmentation",
            "augment_workers=6: up to 3.0 times",
            None,
        ),
        (8, {"cycle": 20e-3, "gather": 20e-3}, "gather", "more threads than 1: up to 2.0", None),
        (8, {"cycle": 20e-3, "upload": 20e-3}, "upload", "up to 2.0 times", None),
    ],
)
def test_the_limit_and_the_remedy(factor, changes, limit, change, full):
    advice = advice_on(Times(**(FAST | changes)), factor, steps=100)
    assert (advice.limit, advice.full_factor) == (limit, full and pytest.approx(full))
    assert change in advice.change
    assert f"the limit is the {limit}" in str(advice)
    assert json.loads(json.dumps(advice.as_json()))["limit"] == limit
