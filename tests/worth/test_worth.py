"""Worth: the true worth lies in the interval, and what cannot be known is not claimed."""

import math
import re

import numpy as np
import pytest
import torch
from learners import arrays_of, info_of, observed

import pyecho
from pyecho.tools.advise.model import Facts, Times
from pyecho.worth.estimate import MOST_FACTOR


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
    state = arrays_of(worth)
    assert state["sums"][0, :3].tolist() == [3, 0, 3]
    assert state["counts"][0, :3].tolist() == [2, 0, 1]
    assert state["squares"].tolist() == [5]


@pytest.mark.parametrize("losses", [["a", "b", "c"], [[1.0], [1.0, 2.0], [3.0]]])
def test_observe_needs_numbers(losses):
    with pytest.raises(pyecho.ConfigError, match=r"losses as numbers, got list \("):
        pyecho.Worth().observe(losses, info_of([0, 0, 0]))


@pytest.mark.parametrize(
    ("losses", "came", "remedy"),
    [
        (1.0, r"float of shape \(\)", "reduction='none'"),
        (torch.tensor(1.0), r"Tensor of shape \(\)", "reduction='none'"),
        ([1.0, 2.0], r"list of shape \(2,\)", "pass all losses of a batch, and the info"),
        (np.ones((3, 1)), r"ndarray of shape \(3, 1\)", "mean over all axes but the first"),
    ],
)
def test_observe_needs_a_loss_for_each_example(losses, came, remedy):
    worth = pyecho.Worth()
    with pytest.raises(
        pyecho.ConfigError, match=rf"one loss for each of 3 examples, .* got {came}; .*{remedy}"
    ):
        worth.observe(losses, info_of([0, 0, 0]))
    assert worth.state_dict()["batches"] == 0


@pytest.mark.parametrize("wrong", ["a", None, [1], 1j, True, math.nan, 0, -1])
def test_estimate_names_a_ratio_or_factor_that_is_no_number_above_its_bound(wrong):
    estimate = pyecho.Worth().estimate()
    came = re.escape(repr(wrong))
    with pytest.raises(
        pyecho.ConfigError, match=rf"^best_factor needs R, a number .*stats\(\)\.ratio .*{came}$"
    ):
        estimate.best_factor(wrong)
    for ask in (estimate.effective, estimate.effective_interval):
        with pytest.raises(
            pyecho.ConfigError, match=rf"^effective needs a factor, a number .*{came}$"
        ):
            ask(wrong)


def test_observe_leaves_out_losses_that_are_not_finite():
    worth = pyecho.Worth()
    worth.observe([1.0, np.nan, np.inf, 4.0, 1e300], info_of([0, 0, 1, 1, 0]))
    assert arrays_of(worth)["counts"][0, :2].tolist() == [1, 1]
    assert arrays_of(worth)["sums"][0, :2].tolist() == [1, 4]


@pytest.mark.parametrize("info", [None, np.zeros(3), ([0, 1, 2], [0, 0, 0])])
def test_observe_needs_the_info_of_the_batch(info):
    with pytest.raises(pyecho.ConfigError, match=r"needs the EchoInfo.*with_info=True"):
        pyecho.Worth().observe([1.0, 2.0, 3.0], info)


def test_observe_goes_on_after_an_info_that_cannot_be():
    worth = pyecho.Worth()
    with pytest.raises(ValueError, match="negative"):
        worth.observe([1.0, 2.0], info_of([0, -1]))
    worth.observe([1.0, 2.0], info_of([0, 1]))
    assert worth.state_dict()["batches"] == 1


class Remote:
    """Losses that come from a device, as arrays of JAX do."""

    def __init__(self, losses):
        self.losses = np.array(losses)
        self.shape = self.losses.shape
        self.asked = self.ready = self.was_read = False

    def copy_to_host_async(self):
        self.asked = True

    def is_ready(self):
        return self.ready

    def __array__(self, dtype=None, copy=None):
        self.was_read = True
        return self.losses.astype(dtype)


def test_observe_counts_losses_of_a_device_in_order_once_they_have_come():
    worth, expected, first = pyecho.Worth(), pyecho.Worth(), Remote([1.0, 2.0])
    for losses in (first, [3.0, 4.0], [5.0, 6.0]):
        assert not first.was_read
        info = info_of([0, 1])
        worth.observe(losses, info)
        expected.observe(getattr(losses, "losses", losses), info)
        assert first.asked
        first.ready = worth.batches == 2
    assert first.was_read
    assert worth.state_dict() == expected.state_dict()


def test_observe_waits_for_the_oldest_losses_of_many_that_do_not_come():
    worth, losses = pyecho.Worth(), [Remote([1.0]) for _ in range(130)]
    for each in losses:
        worth.observe(each, info_of([0]))
    assert [each.was_read for each in losses] == [True] * 2 + [False] * 128
    assert worth.state_dict()["batches"] == 130


def test_observe_keeps_sums_in_bounded_memory():
    worth = pyecho.Worth()
    for step in range(5000):
        worth.observe([float(step % 7), 1.0], info_of([0, step % 40], [step, 0]))
    state = arrays_of(worth)
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
    assert arrays_of(worth)["counts"].sum(0)[:3].tolist() == [640, 640, 640]
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


def test_validation_leaves_out_what_is_not_finite():
    worth = observed([1.0] * 3, batches=1000)
    observed([1.0] * 3, batches=1000, seed=2, worth=worth)  # the same items again
    for step in range(30):
        worth.validation(1.0 / (step + 1))
        observed([1.0] * 3, batches=20, seed=step, worth=worth)
    before = worth.estimate()
    assert before.generalises
    worth.validation(float("nan"))
    worth.validation(torch.tensor(float("inf")))
    worth.validation(1e200)  # its square is not
    assert worth.estimate().rho == before.rho
    assert np.isfinite(before.rho).all()


def test_validation_losses_of_one_time_tell_nothing():
    worth = observed([0.5], batches=500)
    alone = worth.estimate()
    for loss in range(30):
        worth.validation(1.0 + loss % 3)
    assert worth.estimate().rho == pytest.approx(alone.rho)


@pytest.mark.filterwarnings("error")
def test_validation_takes_a_tensor_with_a_gradient():
    worth = pyecho.Worth()
    worth.validation(torch.tensor(1.5, requires_grad=True))
    assert worth.state_dict()["validation_losses"] == [1.5]


@pytest.mark.parametrize("loss", [None, "low", np.ones(3), torch.ones(3)])
def test_validation_needs_a_number(loss):
    with pytest.raises(pyecho.ConfigError, match=r"validation needs a number.*got"):
        pyecho.Worth().validation(loss)


@pytest.mark.parametrize("rho", [[1.0, 1.0, 1.0], [0.9, 0.2, -0.4], [0.8, -0.2, -0.5]])
def test_best_factor_is_that_of_advise(rho):
    estimate = observed(rho, validated=True).estimate()
    facts = Facts(worth=tuple(map(estimate.effective, range(1, MOST_FACTOR + 1))))
    for ratio in (0.5, 1, 2.5, 6, 100):
        best = estimate.best_factor(ratio)
        assert 1 <= best <= max(1, ratio)
        assert best == pytest.approx(facts.best(Times(ratio, 1, 1)).factor)
    assert estimate.best_factor(6) == pytest.approx({1.0: 6, 0.9: 4.5, 0.8: 2.5}[rho[0]], abs=0.6)


def test_best_factor_is_known_only_with_the_worth():
    with pytest.raises(pyecho.EchoError, match=r"no example was repeated.*until then.*factor=3\.5"):
        pyecho.Worth().estimate().best_factor(3.5)
    with pytest.raises(pyecho.ConfigError, match=r"needs R.*got nan"):
        pyecho.Worth().estimate().best_factor(float("nan"))


@pytest.mark.parametrize("factor", [0, -1, 0.5, float("nan"), float("inf")])
def test_effective_needs_a_factor_of_at_least_one(factor):
    estimate = pyecho.Worth().estimate()
    for call in (estimate.effective, estimate.effective_interval):
        with pytest.raises(pyecho.ConfigError, match="at least 1"):
            call(factor)


def test_repr_tells_how_much_was_observed():
    assert repr(observed([0.5], batches=1200)) == "pyecho.Worth(1,200 batches)"
