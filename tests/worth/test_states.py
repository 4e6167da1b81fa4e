"""Worth: states and ranks together are what one run would have observed."""

import io
import json
import pickle

import numpy as np
import pytest
import torch
from learners import arrays_of, info_of, observed

import pyecho


def test_merge_needs_a_worth():
    worth = pyecho.Worth()
    with pytest.raises(pyecho.ConfigError, match=r"another Worth, got dict.*load_state_dict"):
        worth.merge(worth.state_dict())


def test_merge_is_what_one_rank_would_have_observed():
    whole, ranks = pyecho.Worth(), [pyecho.Worth(), pyecho.Worth()]
    rng = np.random.default_rng(4)
    for step in range(1500):
        parts = []
        for rank, worth in enumerate(ranks):
            use = rng.integers(0, 3, 8)
            items = (2 * step + rank) * 8 + np.arange(8)
            parts.append((rng.gamma(2, 1, 8), use, items))
            worth.observe(parts[-1][0], info_of(use, items))
        losses, use, items = map(np.concatenate, zip(*parts, strict=True))
        whole.observe(losses, info_of(use, items))
        if step % 300 == 0:
            for worth in (whole, *ranks):
                worth.validation(1.0 / (step + 1))
    ranks[0].merge(ranks[1])
    merged, expected = ranks[0].state_dict(), whole.state_dict()
    for name in ("counts", "sums", "squares", "validation_uses", "validation_losses"):
        np.testing.assert_allclose(merged[name], expected[name])
    assert merged["later"] == expected["later"]
    assert ranks[0].estimate().effective(2) == pytest.approx(whole.estimate().effective(2))


def test_merge_brings_bins_to_one_width():
    long, short = observed([0.5], batches=700), observed([0.5], batches=300, seed=9)
    long.merge(short)
    assert arrays_of(long)["counts"].sum() == 64 * 1000


@pytest.mark.parametrize("new_first", [True, False])
def test_merge_with_a_new_worth_changes_nothing(new_first):
    worth = observed([0.5], batches=50)
    worth.validation(1.0)
    state = worth.state_dict()
    first, second = (pyecho.Worth(), worth) if new_first else (worth, pyecho.Worth())
    first.merge(second)
    assert first.state_dict() == state
    first.observe([1.0], info_of([0], [10**6]))
    assert second.batches == (50 if new_first else 0)


@pytest.mark.parametrize("batches", [0, 3])
def test_merge_keeps_the_validation_losses_of_runs_without_batches(batches):
    first, second = observed([0.5], batches=0), observed([0.5], batches=batches)
    for worth, losses in ((first, [1.0, 3.0]), (second, [2.0, 5.0])):
        for loss in losses:
            worth.validation(loss)
    first.merge(pyecho.Worth())
    assert first.state_dict()["validation_losses"] == [1.0, 3.0]
    first.merge(second)
    assert first.state_dict()["validation_losses"] == [1.5, 4.0]
    assert first.batches == batches
    assert not first.estimate().identified


def test_validation_losses_take_bounded_memory_and_are_kept_evenly():
    worth, again = pyecho.Worth(), pyecho.Worth()
    for step in range(3000):
        worth.observe([1.0, 1.0], info_of([0, 1], [step, step]))
        worth.validation(float(step))
        if step == 1500:
            again.load_state_dict(worth.state_dict())
        elif step > 1500:
            again.observe([1.0, 1.0], info_of([0, 1], [step, step]))
            again.validation(float(step))
    state = worth.state_dict()
    assert state["validation_losses"] == list(range(0, 3000, 8))
    assert [uses[:2] for uses in state["validation_uses"][:3]] == [[1, 1], [9, 9], [17, 17]]
    assert again.state_dict() == state
    worth.merge(observed([0.5], batches=1))
    assert worth.state_dict()["validation_losses"] == []


def through_torch(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file)


def through_json(state):
    return json.loads(json.dumps(state))


def through_numpy(state):
    file = io.BytesIO()
    np.savez(file, **state)
    file.seek(0)
    return dict(np.load(file, allow_pickle=False))


@pytest.mark.parametrize("way", [dict, through_torch, through_json, through_numpy])
def test_state_goes_on_exactly(way):
    straight = observed([0.7, 0.5], batches=1200)
    straight.validation(0.5)
    saved = way(straight.state_dict())
    again = pyecho.Worth()
    again.load_state_dict(saved)
    again = pickle.loads(pickle.dumps(again))  # a state of a state
    for worth in (straight, again):
        observed([0.7, 0.5], batches=300, seed=5, worth=worth)
    for name, value in straight.state_dict().items():
        np.testing.assert_array_equal(again.state_dict()[name], value)
    assert again.estimate().rho == straight.estimate().rho


@pytest.mark.parametrize(
    "change",
    [
        {"width": 0},
        {"width": 3},
        {"batches": -1},
        {"batches": 10**9},
        {"later": 99},
        {"counts": np.zeros((2, 2))},
        {"squares": "none"},
        {"first": [[1.5, "x"]]},
        {"counts": np.full((10, 16), np.nan)},
        {"counts": np.full((10, 16), -1.0)},
        {"sums": np.full((10, 16), np.inf)},
        {"batches": 10 * 2**2000, "width": 2**2000},
        {"validation_losses": np.zeros(3)},
        {"validation_losses": [np.nan]},
        {"validated": 600, "validation_losses": [1.0] * 600, "validation_uses": [[1] * 16] * 600},
        {"every": 3},
    ],
)
def test_load_state_dict_refuses_what_is_no_state(change):
    worth = observed([0.5], batches=10, validated=True)
    before = worth.state_dict()
    with pytest.raises(pyecho.CheckpointError, match="no state of a Worth"):
        worth.load_state_dict(before | change)
    with pytest.raises(pyecho.CheckpointError):
        worth.load_state_dict({})
    np.testing.assert_array_equal(worth.state_dict()["sums"], before["sums"])
