"""Advice for given times and facts."""

import json

import pytest

from pyecho.tools.advise.model import Facts, Times
from pyecho.tools.advise.remedies import advice_on

FAST = {"upstream": 60e-3, "downstream": 10e-3, "cycle": 10e-3}
FEW = {"items": 1000, "item_bytes": 1e6, "memory_bytes": 2 * 10**9}
AUGMENTED = {"cycle": 45e-3, "augmentation": 90e-3, "augment_workers": 2}


def advised(factor, changes, **facts):
    return advice_on(Times(**(FAST | changes)), factor, 500, Facts(**facts))


@pytest.mark.parametrize(
    ("changes", "factor", "steps_per_second", "idle"),
    [
        ({}, 1, 1 / 60e-3, 5 / 6),
        ({}, 3, 1 / 20e-3, 1 / 2),
        ({}, 8, 1 / 10e-3, 0),
        ({"cycle": 25e-3, "augmentation": 50e-3, "augment_workers": 2}, 2, 1 / 30e-3, 2 / 3),
        ({"cycle": 25e-3, "augmentation": 50e-3, "augment_workers": 2}, 8, 1 / 25e-3, 0.6),
        ({"serial": True}, 2, 1 / 40e-3, 3 / 4),
        ({"downstream": 0.0, "cycle": 1e-4}, 4, 1 / 15e-3, None),
    ],
)
def test_eq_1_on_the_times_of_the_parts(changes, factor, steps_per_second, idle):
    [found] = [each for each in advised(2, changes).predictions if each.factor == factor]
    assert found.steps_per_second == pytest.approx(steps_per_second)
    assert found.idle_share == (None if idle is None else pytest.approx(idle))
    assert found.seconds == pytest.approx(500 / steps_per_second)


@pytest.mark.parametrize(
    ("factor", "changes", "limit", "action", "gain", "full"),
    [
        (2, {}, "source", "Raise factor to 4.0", 2, 6),
        (8, {}, "consumer", "Lower factor to 4.0", 4 / 3, 6),
        (4, {"upstream": 4e-2}, "consumer", "Change nothing", 1, 4),
        (3.9, {"upstream": 4e-2}, "source", "Change nothing", 1, 4),
        (2, {"upstream": 2e-3}, "consumer", "Lower factor to 1.0", 1, 1),
        (1, {"serial": True}, "source", "Leave out threads=0", 14 / 3, None),
        (
            1,
            {"serial": True, "downstream": 0.0, "cycle": 0.0},
            "source",
            "Leave out threads=0",
            4,
            None,
        ),
        (1, {"downstream": 0.0, "cycle": 1e-4}, "source", "Pass a step function", 1, None),
        (4, AUGMENTED, "augmentation", "Use augment_workers=6", 3, None),
        (4, {"cycle": 20e-3, "gather": 20e-3}, "gather", "Use more threads than 1", 4 / 3, None),
        (4, {"cycle": 20e-3, "upload": 20e-3}, "upload", "Send fewer bytes", 4 / 3, None),
    ],
)
def test_limit_and_the_first_remedy(factor, changes, limit, action, gain, full):
    advice = advised(factor, changes)
    assert (advice.limit, advice.full_factor) == (limit, full and pytest.approx(full))
    assert advice.remedies[0].action.startswith(action)
    assert advice.remedies[0].gain == pytest.approx(gain, rel=1e-3)
    assert str(advice).startswith("A batch takes t_up = ")
    assert f"the limit is the {limit}" in str(advice)
    assert str(advice.remedies[0]) in str(advice)
    assert json.loads(json.dumps(advice.as_json()))["remedies"][0]["action"].startswith(action)


@pytest.mark.parametrize(
    ("facts", "kinds", "gain"),
    [
        (FEW, ["memory", "echo"], 6),
        (FEW | {"epochs": 2}, ["echo", "memory"], 4),  # 2 * 60 ms to 60 + 10 ms
        (FEW | {"epochs": 12}, ["memory", "echo"], 12 * 60 / (60 + 11 * 10)),
        (FEW | {"epochs": 1}, ["echo"], 4),
        (FEW | {"item_bytes": None}, ["echo"], 4),
        (FEW | {"memory_bytes": 10**8}, ["echo"], 4),
        ({"workers": {1: 60e-3, 2: 30e-3}}, ["workers", "echo"], 6),
        (FEW | {"workers": {1: 60e-3, 2: 30e-3}}, ["memory", "workers", "echo"], 6),
        ({"workers": {1: 60e-3, 2: 58e-3}}, ["echo"], 4),
        ({"workers": {2: 60e-3, 4: 90e-3}}, ["echo"], 4),
        ({"worth": (1, 1.2, 1.3, 1.3)}, ["echo"], 1.3),
        ({"worth": (1, 1, 1, 1)}, ["-"], 1),
    ],
)
def test_remedies_of_a_slow_source_come_in_the_order_of_their_gain(facts, kinds, gain):
    found = advised(1, {}, **facts).remedies
    assert [each.kind for each in found] == kinds
    assert found[0].gain == pytest.approx(gain, rel=0.02)


@pytest.mark.parametrize("late", [0.0, -0.3])
def test_repeats_that_undo_what_was_learned_are_left_out(late):
    worth = (1, 1.9, 2.1, 1.7, 1.2, 0.7, 0.2, late)
    memory, echo = advised(8, {}, worth=worth, **FEW).remedies
    assert (memory.kind, echo.action) == ("memory", "Lower factor to 3.0")
    assert memory.gain > echo.gain > 10


def test_reason_for_a_factor_says_what_worth_knows():
    [found] = advised(1, {}, worth=(1, 1.2, 1.3, 1.3)).remedies
    assert found.reason == "R is 6.0, and 3.0 uses are worth 1.3 fresh examples, by Worth"


@pytest.mark.parametrize(
    ("busy", "cores", "scale", "action"),
    [
        (0.1, 2, 2, "Use num_workers=8 of the loader"),  # it waits: more than there are cores
        (1.0, 2, 2, "Use num_workers=2 of the loader and factor=3.0"),
        (1.0, 6, 2, "Use num_workers=6 of the loader"),
        (0.1, 2, 1.6, "Use num_workers=16 of the loader and factor=1.8"),  # 15 ms it takes alone
    ],
)
def test_number_of_workers_follows_from_two_measurements(busy, cores, scale, action):
    facts = {"busy_cores": busy, "cores": cores, "workers": {1: 60e-3, 2: 60e-3 / scale}}
    [found] = [each for each in advised(1, {}, **facts).remedies if each.kind == "workers"]
    assert found.action == action
    assert ("waits more than it computes" in found.reason) == (busy < 0.5)
