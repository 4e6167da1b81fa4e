"""Worth: the true worth lies in the interval, and what cannot be known is not claimed."""

import io
import pickle

import numpy as np
import pytest
import torch

import pyecho


def info_of(use, items=None):
    use = np.asarray(use, np.int32)
    items = np.arange(len(use)) if items is None else items
    return pyecho.EchoInfo(np.asarray(items, np.int64), use)


def observed(
    rho, *, seed=0, batches=3000, changing=True, batch=64, worth=None, shift=0.0, validated=False
):
    """Return what was observed of a learner whose repeats are worth rho[0], rho[1], ...

    `shift` raises its losses while the last batches have repeats.
    """
    rng = np.random.default_rng(seed)
    worth = worth or pyecho.Worth()
    worths = np.r_[1.0, rho]
    effective = recent = 0.0
    for step in range(batches):
        most = len(rho) if not changing or step // 250 % 2 else 0
        use = rng.integers(0, most + 1, batch)
        effective += worths[use].sum()
        recent += (np.mean(use > 0) - recent) / 30
        mean = (0.2 + 2 * (1 + effective / 3000) ** -0.5) * (1 + shift * recent)
        if validated and step % 25 == 0:
            worth.validation(mean * (1 + 0.005 * rng.normal()))
        losses = rng.gamma(2, mean / 2, batch)
        worth.observe(losses, info_of(use, step * batch + np.arange(batch)))
    return worth


@pytest.mark.parametrize("first", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("decay", [0.6, 1.0])
def test_estimate_holds_the_true_worth(first, decay):
    rho = first * decay ** np.arange(3)
    estimates = [observed(rho, seed=seed).estimate() for seed in range(4)]
    inside = 0
    for estimate in estimates:
        low, high = estimate.effective_interval(4)
        inside += low <= 1 + rho.sum() <= high
        assert low <= estimate.effective(4) <= high
        assert len(estimate.rho) == len(estimate.interval) == 3
        assert estimate.effective(1) == pytest.approx(1)
        between = estimate.effective(2.5)
        assert between == pytest.approx((estimate.effective(2) + estimate.effective(3)) / 2)
    assert inside >= 3
    assert sum(estimate.identified for estimate in estimates) >= 3


@pytest.mark.parametrize("shift", [0.0, 0.03])
def test_validation_losses_make_the_estimate_sharper_whatever_the_last_repeats_do(shift):
    inside = 0
    for seed in range(4):
        alone = observed([0.8, 0.64, 0.512], seed=seed, shift=shift).estimate()
        both = observed([0.8, 0.64, 0.512], seed=seed, shift=shift, validated=True).estimate()
        assert both.identified
        assert both.generalises
        (wide_low, wide_high), (low, high) = (each.effective_interval(4) for each in (alone, both))
        assert high - low < 0.7 * (wide_high - wide_low)
        inside += low <= 2.952 <= high
    assert inside >= 3


def test_estimate_tells_worthless_repeats_from_repeats_as_good_as_fresh():
    worthless = observed([0.0] * 3, batches=6000).estimate()
    good = observed([1.0] * 3, batches=6000).estimate()
    assert worthless.effective_interval(4)[1] < good.effective_interval(4)[0]


def test_estimate_claims_nothing_where_the_mix_never_changes():
    estimate = observed([0.5] * 3, changing=False).estimate()
    assert not estimate.identified
    assert "mix" in estimate.reason
    low, high = estimate.effective_interval(4)
    assert high - low > 2
    assert "not known" in str(estimate)


def test_estimate_says_what_is_missing():
    worth = pyecho.Worth()
    assert "repeated" in worth.estimate().reason
    worth.observe([1.0, 2.0], info_of([0, 0]))
    assert "repeated" in worth.estimate().reason
    worth.observe([1.0, 2.0], info_of([1, 1], [0, 1]))
    assert "losses on fresh examples" in worth.estimate().reason


def test_estimate_is_the_same_object_until_more_was_observed():
    worth = observed([0.5], batches=100)
    first = worth.estimate()
    assert worth.estimate() is first
    worth.observe([1.0], info_of([0], [10**6]))
    assert worth.estimate() is not first


def test_gap_shows_examples_known_by_heart():
    worth = pyecho.Worth()
    for step in range(200):
        worth.observe([2.0, 1.5, 0.5], info_of([0, 1, 2], [step, step, step]))
    assert worth.estimate().gap == pytest.approx((-0.5, -1.5))


@pytest.mark.parametrize(
    "losses",
    [
        [1.0, 2.0, 3.0],
        np.array([1, 2, 3], np.float16),
        torch.tensor([1.0, 2.0, 3.0], requires_grad=True),
        torch.tensor([1.0, 2.0, 3.0], dtype=torch.bfloat16),
        torch.tensor([[1.0], [2.0], [3.0]]).squeeze(1),
    ],
)
def test_observe_takes_losses_of_every_kind(losses):
    worth = pyecho.Worth()
    worth.observe(losses, info_of([0, 0, 2]))
    state = worth.state_dict()
    assert state["sums"][0, :3].tolist() == [3, 0, 3]
    assert state["counts"][0, :3].tolist() == [2, 0, 1]
    assert state["squares"].tolist() == [5]


@pytest.mark.parametrize("losses", [1.0, [1.0, 2.0], np.ones((3, 1)), torch.tensor(1.0)])
def test_observe_needs_a_loss_for_each_example(losses):
    worth = pyecho.Worth()
    with pytest.raises(pyecho.ConfigError, match=r"one loss for each of 3 examples.*reduction"):
        worth.observe(losses, info_of([0, 0, 0]))
    assert worth.state_dict()["batches"] == 0


def test_observe_leaves_out_losses_that_are_not_finite():
    worth = pyecho.Worth()
    worth.observe([1.0, np.nan, np.inf, 4.0], info_of([0, 0, 1, 1]))
    assert worth.state_dict()["counts"][0, :2].tolist() == [1, 1]
    assert worth.state_dict()["sums"][0, :2].tolist() == [1, 4]


def test_observe_keeps_sums_in_bounded_memory():
    worth = pyecho.Worth()
    for step in range(5000):
        worth.observe([float(step % 7), 1.0], info_of([0, step % 40], [step, 0]))
    state = worth.state_dict()
    assert state["batches"] == 5000
    assert len(state["counts"]) <= 512
    assert state["counts"].sum() == 10_000
    assert state["sums"].sum() == sum(step % 7 for step in range(5000)) + 5000


def test_observe_follows_a_loader():
    loader = pyecho.EchoLoader(
        np.arange(640.0), 3, batch_size=16, shuffle_buffer=64, with_info=True
    )
    worth = pyecho.Worth()
    for batch, info in loader:
        worth.observe(batch, info)
    assert worth.state_dict()["counts"].sum(0)[:3].tolist() == [640, 640, 640]
    assert worth.estimate().generalises
    for batch, info in loader:
        worth.observe(batch, info)
    assert not worth.estimate().generalises


@pytest.mark.parametrize("items", [16, 64, 128, 160])
def test_worth_of_a_first_pass_of_a_few_batches_is_unknown(items):
    loader = pyecho.EchoLoader(np.arange(1.0 * items), 2, batch_size=16, with_info=True)
    worth = pyecho.Worth()
    for _ in range(2):
        for batch, info in loader:
            worth.observe(batch, info)
            estimate = worth.estimate()
    assert "losses on fresh examples" in estimate.reason
    assert not estimate.generalises


def test_later_passes_need_a_validation_loss():
    worth = observed([1.0] * 3, seed=1)
    before = worth.estimate()
    assert before.generalises
    observed([1.0] * 3, seed=2, worth=worth)  # the same items again
    after = worth.estimate()
    assert not after.generalises
    assert "validation" in str(after)
    assert after.effective(4) == pytest.approx(before.effective(4), abs=0.3)


def test_validation_takes_the_place_of_fresh_losses():
    rng = np.random.default_rng(3)
    worth, effective = pyecho.Worth(), 0.0
    for step in range(4000):
        use = rng.integers(0, 4 if step // 400 % 2 else 1, 64)
        effective += 64 if step // 400 % 2 == 0 else (use == 0).sum()  # repeats are worth nothing
        items = (step * 64 + np.arange(64)) % 64_000
        worth.observe(rng.gamma(2, 0.5, 64), info_of(use, items))
        if step % 40 == 0:
            worth.validation(0.2 + 2 * (1 + effective / 3000) ** -0.5 + rng.normal() * 0.002)
    estimate = worth.estimate()
    assert estimate.generalises
    assert estimate.effective_interval(4)[1] < 2


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
    assert long.state_dict()["counts"].sum() == 64 * 1000


def through_torch(state):
    file = io.BytesIO()
    torch.save(
        {
            name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
            for name, value in state.items()
        },
        file,
    )
    file.seek(0)
    return torch.load(file, weights_only=True)


def through_numpy(state):
    file = io.BytesIO()
    np.savez(file, **state)
    file.seek(0)
    return dict(np.load(file, allow_pickle=False))


@pytest.mark.parametrize("way", [dict, through_torch, through_numpy])
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
        {"validation_losses": np.zeros(3)},
    ],
)
def test_load_state_dict_refuses_what_is_no_state(change):
    worth = observed([0.5], batches=10)
    before = worth.state_dict()
    with pytest.raises(pyecho.CheckpointError, match="no state of a Worth"):
        worth.load_state_dict(before | change)
    with pytest.raises(pyecho.CheckpointError):
        worth.load_state_dict({})
    np.testing.assert_array_equal(worth.state_dict()["sums"], before["sums"])
