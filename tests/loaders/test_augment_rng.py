"""Random numbers in augment= depend on seed, epoch and number of the batch, and on nothing else."""

import random
import threading
from functools import partial

import numpy as np
import pytest
import torch
from interrupt_points import Interrupts
from torch.nn import functional

import pyecho
from pyecho.torch.random import SeededTorch

X = torch.linspace(0.1, 0.9, 64).reshape(2, 2, 4, 4)
IMAGE = torch.arange(400.0).view(1, 1, 20, 20)
LSTM = torch.nn.LSTM(4, 4, 2, dropout=0.5)


def applied(function, seed=1, epoch=2, number=1):
    """Return the result of augment for batch `number` of an epoch."""
    loader = pyecho.EchoLoader(
        range(number + 1), 1, augment=lambda batch, rng: function(), seed=seed
    )
    loader.set_epoch(epoch)
    return list(loader)[number]


def global_numbers():
    """Numbers that the global generators give next."""
    return torch.rand(3).tolist(), random.random(), np.random.random()


# By function: each way that torch/random.py finds and seeds a draw.
DRAWS = {
    "rand": lambda: torch.rand(3),
    "rand out": lambda: torch.rand(3, out=torch.empty(3)),
    "randint low": lambda: torch.randint(2, 2**30, (3,)),
    "randperm": lambda: torch.randperm(99),
    "normal of tensors": lambda: torch.normal(X, std=X),
    "multinomial": lambda: torch.multinomial(X.flatten(), 20),
    "poisson": lambda: torch.poisson(X * 100),
    "binomial": lambda: torch.binomial(torch.full((9,), 50.0), torch.full((9,), 0.5)),
    "uniform_": lambda: X.clone().uniform_(),
    "geometric_": lambda: X.clone().geometric_(0.1),
    "rand_like": lambda: torch.rand_like(X, dtype=torch.float64),
    "randint_like low": lambda: torch.randint_like(X, 2, 2**20),
    "dropout": lambda: functional.dropout(X),
    "dropout in place": lambda: functional.dropout(X.clone(), inplace=True),
    "torch.dropout": lambda: torch.dropout(X, 0.5, train=True),
    "rrelu": lambda: functional.rrelu(-X, training=True),
    "attention": lambda: functional.scaled_dot_product_attention(X, X, X, dropout_p=0.5),
    "lstm": lambda: LSTM(X[0])[0],
    "fractional pool": lambda: functional.fractional_max_pool2d(IMAGE, 2, (8, 8)),
    "low rank": lambda: torch.svd_lowrank(X.view(8, 8), q=2)[0],
    "Beta": lambda: torch.distributions.Beta(0.4, 0.4).sample((3,)),
    "a layer": lambda: torch.nn.Linear(3, 3).weight,
    "a sampler": lambda: torch.tensor(list(torch.utils.data.RandomSampler(range(99)))),
    "vmap": lambda: torch.vmap(lambda row: row + torch.rand(4), randomness="different")(X[0, 0]),
    "without grad": torch.no_grad()(lambda: functional.dropout(X) + torch.rand(1)),
    "inference": torch.inference_mode()(lambda: (torch.rand_like(X) + torch.rand(1)).clone()),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_torch_draws_by_seed_epoch_and_number_and_leaves_the_global_generators_alone(draw):
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(3)
    expected = global_numbers()
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(3)
    drawn = applied(draw)
    assert global_numbers() == expected
    assert torch.equal(applied(draw), drawn)
    others = [applied(draw, seed=2), applied(draw, epoch=3), applied(draw, number=2)]
    assert not any(torch.equal(other, drawn) for other in others)


@pytest.mark.parametrize("draw", [lambda: torch.rand(3), lambda: torch.rand_like(X)])
def test_interrupt_at_any_point_of_a_seeded_call_leaves_the_global_generator_in_use(draw):
    point, struck = 0, True
    while struck:
        point += 1
        struck = not Interrupts(point).strikes(partial(SeededTorch(lambda: 5).call, draw))
        numbers = []
        for _ in range(2):
            torch.manual_seed(3)
            numbers += torch.rand(3).tolist()
        assert numbers[:3] == numbers[3:], f"point {point}"
    assert point > 5


def test_draws_of_one_call_differ_and_those_of_numpy_and_torch_are_apart():
    def augment(batch, rng):
        return torch.rand(9).tolist() + torch.rand(9).tolist() + rng.random(9).tolist()

    [drawn] = pyecho.EchoLoader([0], 1, augment=augment)
    assert len(set(drawn)) == 27


def test_generator_of_the_users_own_is_used():
    def draw():
        own = torch.Generator().manual_seed(5)
        return torch.rand(3, generator=own).tolist(), X.clone().normal_(generator=own).tolist()

    assert applied(draw) == draw()


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

    assert torch.equal(applied(augment, number=0), expected)


def test_draws_on_other_devices_are_left_to_them():
    with torch.device("meta"):  # as torch.set_default_device() does
        assert applied(lambda: torch.rand(3)).is_meta
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
