"""Random numbers in augment= depend on seed, epoch and number of the batch, and on nothing else."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch.nn import functional

from pyecho import ConfigError
from pyecho.augment import Augmenter

X = torch.linspace(0.1, 0.9, 64).reshape(2, 2, 4, 4)
IMAGE = torch.arange(400.0).view(1, 1, 20, 20)
LSTM = torch.nn.LSTM(4, 4, 2, dropout=0.5)


def applied(function, seed=1, epoch=2, number=3):
    return Augmenter(lambda batch, rng: function(), seed).apply(None, epoch, number)


def test_numpy_numbers_are_those_of_a_philox_counter():
    """Fixed for ever: seed is the key, number and epoch are words of the counter."""
    [drawn] = [Augmenter(lambda b, rng: rng.integers(b, size=4), 7).apply(1000, 3, 5)]
    expected = np.random.Generator(np.random.Philox(key=7, counter=[0, 0, 5, 3]))
    assert drawn.tolist() == expected.integers(1000, size=4).tolist()


def test_none_is_refused():
    with pytest.raises(ConfigError, match="augment returned None; it must return the batch"):
        applied(lambda: None)


DRAWS = {
    "rand": lambda: torch.rand(3),
    "rand out": lambda: torch.rand(3, out=torch.empty(3)),
    "randn": lambda: torch.randn((3,), dtype=torch.float64),
    "randint": lambda: torch.randint(2**30, (3,)),
    "randint low": lambda: torch.randint(2, 2**30, (3,)),
    "randperm": lambda: torch.randperm(99),
    "normal": lambda: torch.normal(0.0, 1.0, (3,)),
    "normal of tensors": lambda: torch.normal(X, std=X),
    "bernoulli": lambda: torch.bernoulli(X),
    "Tensor.bernoulli": lambda: X.bernoulli(0.5),
    "multinomial": lambda: torch.multinomial(X.flatten(), 20),
    "poisson": lambda: torch.poisson(X * 100),
    "binomial": lambda: torch.binomial(torch.full((9,), 50.0), torch.full((9,), 0.5)),
    **{
        name: lambda name=name: getattr(X.clone(), name)()
        for name in ("cauchy_", "exponential_", "log_normal_", "normal_", "random_", "uniform_")
    },
    "bernoulli_": lambda: X.clone().bernoulli_(),
    "geometric_": lambda: X.clone().geometric_(0.1),
    "rand_like": lambda: torch.rand_like(X, dtype=torch.float64),
    "randn_like": lambda: torch.randn_like(X, requires_grad=True),
    "randint_like": lambda: torch.randint_like(X, 2**20),
    "randint_like low": lambda: torch.randint_like(X, 2, 2**20),
    "dropout": lambda: functional.dropout(X),
    "dropout in place": lambda: functional.dropout(X.clone(), inplace=True),
    "dropout2d": lambda: functional.dropout2d(X.reshape(2, 16, 2, 1)),
    "alpha_dropout": lambda: functional.alpha_dropout(X, training=True),
    "torch.dropout": lambda: torch.dropout(X, 0.5, train=True),
    "rrelu": lambda: functional.rrelu(-X, training=True),
    "gumbel_softmax": lambda: functional.gumbel_softmax(X),
    "attention": lambda: functional.scaled_dot_product_attention(X, X, X, dropout_p=0.5),
    "lstm": lambda: LSTM(X[0])[0],
    "fractional pool": lambda: functional.fractional_max_pool2d(IMAGE, 2, (8, 8)),
    "low rank": lambda: torch.svd_lowrank(X.view(8, 8), q=2)[0],
    "Beta": lambda: torch.distributions.Beta(0.4, 0.4).sample((3,)),
    "Dirichlet": lambda: torch.distributions.Dirichlet(torch.ones(3)).rsample(),
    "Categorical": lambda: torch.distributions.Categorical(torch.ones(999)).sample((3,)),
    "a layer": lambda: torch.nn.Linear(3, 3).weight,
    "a sampler": lambda: torch.tensor(list(torch.utils.data.RandomSampler(range(99)))),
    "vmap": lambda: torch.vmap(lambda row: row + torch.rand(4), randomness="different")(X[0, 0]),
    "without grad": torch.no_grad()(lambda: functional.dropout(X) + torch.rand(1)),
    "inference": torch.inference_mode()(lambda: (torch.rand_like(X) + torch.rand(1)).clone()),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_torch_draws_by_seed_epoch_and_number_and_leaves_the_global_generator_alone(draw):
    before = torch.get_rng_state()
    drawn = applied(draw)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(1)
    assert torch.equal(applied(draw), drawn)
    others = [applied(draw, seed=2), applied(draw, epoch=3), applied(draw, number=4)]
    assert not all(torch.equal(other, drawn) for other in others)


def test_draws_of_one_call_differ_and_those_of_numpy_and_torch_are_apart():
    one, other, rng = Augmenter(
        lambda batch, rng: (torch.rand(9), torch.rand(9), rng.random(9)), 1
    ).apply(None, 0, 0)
    assert len({*one.tolist(), *other.tolist(), *rng.tolist()}) == 27


def test_a_generator_of_the_users_own_is_used():
    def draw():
        own = torch.Generator().manual_seed(5)
        return torch.rand(3, generator=own), X.clone().normal_(generator=own)

    for one, other in zip(applied(draw), draw(), strict=True):
        assert torch.equal(one, other)


def test_the_results_are_the_same_on_any_number_of_threads():
    def augment(batch, rng):
        noise = functional.dropout(batch) + torch.rand(1) + torch.empty(8).uniform_()
        return noise + float(rng.random())

    augmenter = Augmenter(augment, 1)

    def run(number):
        return augmenter.apply(torch.ones(8), 0, number).tolist()

    state = torch.get_rng_state()
    expected = [run(number) for number in range(200)]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(run, range(200))) == expected
    assert torch.equal(torch.get_rng_state(), state)


def test_other_threads_draw_from_the_global_generator_meanwhile():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)

    def augment():
        results = []
        thread = threading.Thread(target=lambda: results.append(torch.rand(2)))
        thread.start()
        thread.join()
        return results[0]

    assert torch.equal(applied(augment), expected)


def test_draws_on_other_devices_are_left_to_them():
    with torch.device("meta"):  # as torch.set_default_device() does
        assert applied(lambda: torch.rand(3)).is_meta
        assert applied(lambda: torch.rand_like(torch.empty(3))).is_meta
        assert applied(lambda: functional.dropout(torch.empty(3))).is_meta
        drawn = [applied(lambda: torch.rand(3, device="cpu")) for _ in range(2)]
    assert torch.equal(*drawn)
    assert applied(lambda: torch.rand_like(X, device="meta")).is_meta


def test_compiled_functions_are_compiled_whole():
    compiled = torch.compile(
        lambda x: functional.dropout(x) + torch.rand(3) * torch.rand_like(x),
        backend="eager",
        fullgraph=True,
    )
    assert applied(lambda: compiled(torch.ones(3))).shape == (3,)


def test_an_error_leaves_torch_as_it_was():
    with pytest.raises(ZeroDivisionError):
        applied(lambda: 1 / 0)
    with pytest.raises(ValueError, match="probability"):
        applied(lambda: functional.dropout(X, 2.0))
    torch.manual_seed(3)
    one = torch.rand(3)
    torch.manual_seed(3)
    assert torch.equal(torch.rand(3), one)
