"""`pad_last`: the last batch of an epoch is filled by additional uses."""

from itertools import chain

import numpy as np
import pytest
from drivers import Iterated

import pyecho


def uses_of(loader):
    return [info.use.tolist() for _, info in loader]


@pytest.mark.parametrize("source", [range, lambda n: Iterated(range(n))], ids=["told", "untold"])
@pytest.mark.parametrize("unique", [False, True])
@pytest.mark.parametrize("capacity", [1, 8, 100])
@pytest.mark.parametrize("threads", [0, 2])
def test_all_batches_are_full_and_own_uses_are_exact(source, unique, capacity, threads):
    for items, factor in [(1, 2), (16, 1), (17, 1.5), (40, 3)]:
        loader = pyecho.EchoLoader(
            source(items),
            factor,
            batch_size=8,
            shuffle_buffer=max(capacity, 8 * unique),
            unique_in_batch=unique,
            threads=threads,
            with_info=True,
            pad_last=True,
        )
        own = int(items * factor + 0.5)
        for _ in range(2):
            uses = uses_of(loader)
            assert {len(batch) for batch in uses} == {8}
            assert sum(use >= 0 for batch in uses for use in batch) == own
            assert all(max(batch) >= 0 for batch in uses)  # none of additional uses only
            assert unique or len(uses) == -(-own // 8)
        assert loader.stats().additional == loader.stats().batches * 8 - 2 * own


def test_batches_are_those_without_it_and_a_filled_one():
    plain = pyecho.EchoLoader(range(50), 1.5, batch_size=8)
    padded = pyecho.EchoLoader(range(50), 1.5, batch_size=8, pad_last=True)
    assert len(padded) == len(plain)
    for batch, expected in zip(padded, plain, strict=True):
        assert batch[: len(expected)].tolist() == expected.tolist()


def test_own_uses_of_an_item_are_in_different_batches():
    for items, factor, seed in [(3, 2, 0), (9, 3, 1), (5, 4, 2)]:
        options = {"batch_size": 4, "shuffle_buffer": 4, "seed": seed, "with_info": True}
        loader = pyecho.EchoLoader(
            range(items), factor, unique_in_batch=True, pad_last=True, **options
        )
        owned = [batch[info.use >= 0].tolist() for batch, info in loader]
        assert all(len(set(batch)) == len(batch) for batch in owned)
        assert sorted(chain(*owned)) == sorted([*range(items)] * factor)


@pytest.mark.parametrize("payload", [False, True])
@pytest.mark.parametrize("source", [range(30), Iterated(range(30))], ids=["told", "untold"])
def test_a_state_goes_on_in_any_batch(source, payload):
    def make():
        return pyecho.EchoLoader(source, 2, batch_size=8, shuffle_buffer=20, pad_last=True)

    whole = [batch.tolist() for loader in [make()] for _ in range(2) for batch in loader]
    for taken in range(9):
        loader, resumed = make(), make()
        batches = iter(loader)
        for _ in range(taken):
            next(batches)
        resumed.load_state_dict(loader.state_dict(payload=payload))
        rest = [batch.tolist() for batch in resumed]
        assert rest == whole[taken:8] or (taken == 0 and rest == whole[:8])


def test_a_wrong_length_loses_nothing():
    class Told(Iterated):
        def __len__(self):
            return 10

    loader = pyecho.EchoLoader(Told(range(20)), 1, batch_size=8, pad_last=True, with_info=True)
    own = [batch[info.use >= 0].tolist() for batch, info in loader]
    assert sorted(chain(*own)) == list(range(20))
    assert len(own) == 3


def test_an_error_of_the_source_follows_what_came_before():
    def failing():
        yield from range(10)
        raise OSError("disk")

    batches = iter(pyecho.EchoLoader(failing(), 1, batch_size=8, pad_last=True))
    seen = [*next(batches), *next(batches)]
    assert (len(seen), set(seen)) == (16, set(range(10)))
    with pytest.raises(OSError, match="disk"):
        next(batches)


def test_a_one_shot_source_with_steps_ends_with_a_full_batch():
    options = {"batch_size": 8, "steps_per_epoch": 2, "pad_last": True}
    loader = pyecho.EchoLoader(iter(range(27)), 1, **options)
    assert [[len(batch) for batch in loader] for _ in range(2)] == [[8, 8], [8, 8]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": None}, "needs a batch_size"),
        ({"drop_last": True}, "leaves the last batch out"),
        ({"epochs": 2}, "with epochs="),
        ({"factor": pyecho.Adaptive(4)}, "Adaptive"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(pyecho.ConfigError, match=message):
        pyecho.EchoLoader(np.arange(9), **({"batch_size": 4} | options), pad_last=True)
