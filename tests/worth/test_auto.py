"""factor="auto": the pace follows the worth, and the log gives the same batches again."""

import copy
import pickle
from collections import Counter

import numpy as np
import pytest
from learners import observed

import pyecho
from pyecho.worth.auto import MOST, PERIOD, PROBES

ITEMS = np.arange(200_000, dtype=np.float32)


def loader_of(items=ITEMS, worth=None, **options):
    options = {"batch_size": 32, "shuffle_buffer": 256, "with_info": True} | options
    worth = pyecho.Worth() if worth is None else worth
    return pyecho.EchoLoader(items, "auto", worth=worth, **options), worth


def watched(loader, worth, rho, batches, ratio, size=1):
    """Take batches as a learner whose repeats are worth rho; return the paces of the periods.

    `size` is that of its losses.
    """
    rng = np.random.default_rng(0)
    worths = np.concatenate([[1.0], rho, np.full(MOST, rho[-1])])
    effective, fresh, emitted, paces = 0.0, 0, 0, []
    factor = loader._config.adaptive
    factor._stats = lambda: (
        lambda: pyecho.EchoStats(
            read=fresh, emitted=emitted, upstream_seconds=fresh * ratio, downstream_seconds=emitted
        )
    )
    for number, (_, info) in enumerate(loader):
        fresh += int((info.use == 0).sum())
        emitted += len(info.use)
        effective += worths[info.use].sum()
        mean = 0.2 + 2 * (1 + effective / 3000) ** -0.5
        worth.observe(size * rng.gamma(2, mean / 2, len(info.use)), info)
        if number % PERIOD == PERIOD - 1:
            paces.append(factor.pace.value)
        if number == batches:
            break
    loader.close()
    return paces


def test_auto_repeats_up_to_r_what_is_worth_it():
    loader, worth = loader_of()
    paces = watched(loader, worth, [1.0], 24 * PERIOD, ratio=4)
    assert len(set(paces[:6])) == 2  # probes
    assert all(3.5 <= pace <= 5 for pace in paces[-4:])


@pytest.mark.slow
def test_auto_repeats_less_where_late_repeats_do_harm():
    loader, worth = loader_of(np.arange(400_000, dtype=np.float32))
    paces = watched(loader, worth, [0.9, 0.2, -0.4, -0.5], 24 * PERIOD, ratio=12)
    assert all(pace < 8 for pace in paces[-4:])


@pytest.mark.slow
def test_auto_probes_for_a_while_only_where_losses_tell_nothing():
    loader, worth = loader_of(np.arange(400_000, dtype=np.float32))
    paces = watched(loader, worth, [1.0], 2 * PROBES * PERIOD, ratio=3, size=0)
    assert set(paces) == {1.5, 3}
    assert set(paces[-PROBES // 2 :]) == {3}


def test_auto_believes_what_a_loaded_worth_has_observed():
    loader, worth = loader_of()
    factor = loader._config.adaptive
    factor._decide(8.0)
    assert factor.pace.value == 4  # nothing is known
    loader, worth = loader_of()
    worth.load_state_dict(observed([1.0] * 3, batches=6000).state_dict())
    factor = loader._config.adaptive
    factor._decide(8.0)
    assert 4 < factor.pace.value <= 8
    loader, worth = loader_of()
    worth.load_state_dict(observed([1.0] * 3, batches=2 * PERIOD).state_dict())
    factor = loader._config.adaptive
    paces = []
    for _ in range(8):
        factor._decide(8.0)
        paces.append(factor.pace.value)
    assert paces[:6] == [4, 2, 4, 4, 4, 2]  # two of eight periods have passed


def batches_of(loader, worth=None):
    found = []
    for batch, info in loader:
        found.append((batch.copy(), info.source_index.copy(), info.use.copy()))
        if worth is not None:
            worth.observe(batch % 7, info)
    return found


def equal(these, those):
    return len(these) == len(those) and all(
        np.array_equal(one, other)
        for this, that in zip(these, those, strict=True)
        for one, other in zip(this, that, strict=True)
    )


def replaying(items, log, **options):
    factor = pyecho.Adaptive(MOST).replay(log)
    return pyecho.EchoLoader(
        items, factor, batch_size=32, shuffle_buffer=256, with_info=True, **options
    )


@pytest.mark.parametrize("source", [list, iter])
def test_auto_log_gives_the_same_batches_on_any_number_of_threads(source):
    items = ITEMS[:40_000]
    loader, worth = loader_of(source(items) if source is iter else items)
    expected = batches_of(loader, worth)
    log = loader.stats().log
    uses = Counter(np.concatenate([items for _, items, _ in expected]).tolist())
    assert len(uses) == len(items)
    assert max(uses.values()) <= MOST
    for threads in (0, 1, 2, 4):
        assert equal(batches_of(replaying(items, log, threads=threads)), expected)


def test_auto_without_losses_warns_with_the_second_epoch():
    loader, worth = loader_of(np.arange(1600, dtype=np.float32))
    next(iter(loader))  # a look at the first batch
    for _, info in loader:
        last = info
    with pytest.warns(RuntimeWarning, match=r"no losses in \d+ batches.*call worth\.observe"):
        iter(loader)
    worth.observe(np.ones(len(last.use)), last)
    iter(loader)


def test_auto_states_of_states_go_on_exactly():
    items = ITEMS[:20_000]
    loader, worth = loader_of(items)
    taken, states = [], []
    for batch, info in loader:
        taken.append((batch.copy(), info.source_index.copy(), info.use.copy()))
        worth.observe(batch, info)
        if len(taken) % 150 == 0:
            states.append((len(taken), loader.state_dict(payload=len(states) % 2 == 0)))
    log = loader.stats().log
    for done, state in states:
        again, _ = loader_of(items)
        again.load_state_dict(state)
        again = pickle.loads(pickle.dumps(again))
        first = next(iter(again))
        second, _ = loader_of(items)
        second.load_state_dict(again.state_dict())
        seen = [each for _, each, _ in taken[:done]] + [first[1].source_index]
        seen += [each for _, each, _ in batches_of(second)]
        assert set(np.concatenate(seen).tolist()) == set(range(len(items)))
        replayed = replaying(items, log)
        replayed.load_state_dict(state)
        assert equal(batches_of(replayed), taken[done:])


def test_auto_copies_keep_the_pace_and_follow_nothing():
    loader, _ = loader_of(ITEMS[:1000])
    loader._config.adaptive.pace.value = 3.5
    other = copy.deepcopy(loader._config.adaptive)
    assert other.pace.value == 3.5
    assert other.pace is not loader._config.adaptive.pace
    assert "auto (3.5)" in repr(loader)


@pytest.mark.parametrize("how", ["shallow", "deep", "pickle"])
def test_auto_decides_in_loaders_that_were_copied_and_in_copies(how):
    loader, _ = loader_of(ITEMS[:20_000])
    again = loader
    if how == "shallow":  # the copy, which shares the factor, is dropped at once
        copy.copy(loader)
    else:
        again = copy.deepcopy(loader) if how == "deep" else pickle.loads(pickle.dumps(loader))
    for batch, info in again:
        again._config.worth.observe(batch, info)
        if "auto (2)" not in repr(again):
            return
    pytest.fail("it stayed at two uses")


def test_worth_lets_go_of_loaders():
    loader, worth = loader_of(ITEMS[:1000])
    assert len(worth.observers) == 1
    loader.close()
    del loader
    worth.observe([1.0], pyecho.EchoInfo(np.zeros(1, np.int64), np.zeros(1, np.int32)))
    assert len(worth.observers) == 0


@pytest.mark.parametrize(
    "options",
    [
        {"worth": None},
        {"worth": pyecho.Worth},
        {"with_info": False},
        {"batch_size": None, "shuffle_buffer": None},
    ],
)
def test_auto_says_what_it_needs(options):
    options = {"batch_size": 32, "with_info": True, "worth": pyecho.Worth()} | options
    with pytest.raises(pyecho.ConfigError, match=r"auto.*needs worth=pyecho\.Worth"):
        pyecho.EchoLoader(ITEMS, "auto", **options)


def test_worth_without_auto_is_refused():
    with pytest.raises(pyecho.ConfigError, match="worth= decides"):
        pyecho.EchoLoader(ITEMS, 2, batch_size=32, worth=pyecho.Worth())


def test_auto_is_refused_with_a_pool_on_a_device_and_by_buffers():
    import pyecho.torch

    with pytest.raises(pyecho.ConfigError, match=r"Device\(echo=True\)"):
        pyecho.torch.EchoLoader(
            ITEMS,
            "auto",
            batch_size=32,
            with_info=True,
            worth=pyecho.Worth(),
            device=pyecho.torch.Device("cuda", echo=True),
        )
    with pytest.raises(pyecho.ConfigError, match="worth"):
        pyecho.EchoBuffer({"x": pyecho.Field((), "f4")}, batch_size=4, factor="auto", capacity=8)
