"""States of a run that goes on with other numbers of ranks."""

import copy
import itertools
import random

import numpy as np
import pytest
from worlds import Unsized, global_batches, loader_of, run_world

from pyecho import CheckpointError, ConfigError, EchoError, EchoLoader
from pyecho.state.reshard import merge, of_rank, split

BATCH, SHARDS, POOL = 24, 12, 240


def go_on(size, run, steps, items, factor, *, known=True, ends=3, payload=False, **options):
    """Take so many global batches and ends of epochs, at most; return them and the state then."""

    def rank_does(member):
        part = items[member.rank :: member.size]
        loader = loader_of(
            member,
            np.array(part) if known else Unsized([np.int64(each) for each in part]),
            factor,
            batch_size=BATCH // member.size,
            shuffle_buffer=POOL // member.size,
            shards=SHARDS,
            **options,
        )
        if run is not None:
            loader.load_state_dict(run)
        taken = []
        with loader:
            while taken.count(None) < ends:
                for batch in loader:
                    taken.append(batch.tolist())
                    if len(taken) >= steps:
                        return taken, loader.state_dict(payload=payload)
                taken.append(None)
            return taken, loader.state_dict(payload=payload)

    results, _ = run_world(size, rank_does)
    return global_batches([each[0] for each in results]), merge([each[1] for each in results])


def check(case):
    draw = random.Random(case)
    items = list(range(draw.choice([12, 30, 97, 200, 333])))
    options = {
        "known": draw.random() < 0.7,
        "factor": draw.choice([1, 2, 1.5, 3]),
        "unique_in_batch": draw.random() < 0.25,
    }
    if options["known"] and not options["unique_in_batch"] and draw.random() < 0.4:
        items = list(range(len(items) // 12 * 12))
        options |= draw.choice([{"epochs": 3}, {"steps_per_epoch": 7}])
    whole, _ = go_on(1, None, 10**6, items, **options)
    taken, run = [], None
    for size in (1, 2, 3, 1, 6, 4):
        steps = draw.randint(1, max(2, len(whole) // 4)) if size != 4 else 10**6
        left = 3 - taken.count(None)
        payload = draw.random() < 0.3
        more, run = go_on(size, run, steps, items, ends=left, payload=payload, **options)
        taken += more
        if taken.count(None) == 3:
            break
    assert taken == whole


@pytest.mark.parametrize("case", range(25))
def test_other_numbers_of_ranks_go_on_with_the_same_global_batches(case):
    check(case)


@pytest.mark.stress
def test_hundreds_of_runs_go_on():
    for case in range(1000, 1300):
        check(case)


def test_the_same_number_of_ranks_keeps_the_items():
    items = list(range(200))
    whole, _ = go_on(2, None, 10**6, items, 2)
    taken, run = go_on(2, None, 9, items, 2, payload=True)
    assert run["states"][1]["flow"]["numbers"].size > 0
    assert split(run, 1, 2) == run["states"][1]
    more, _ = go_on(2, run, 10**6, items, 2)
    assert taken + more == whole


@pytest.mark.parametrize("size", [1, 3, 4])
def test_a_state_without_items_of_any_rank_serves_all(size):
    items = list(range(200))
    whole, _ = go_on(3, None, 10**6, items, 1.5)
    taken, run = go_on(3, None, 9, items, 1.5)
    more, _ = go_on(size, run["states"][1], 10**6, items, 1.5)
    assert taken + more == whole


def test_what_cannot_be_dealt_again():
    _, run = go_on(2, None, 5, list(range(200)), 2)
    with pytest.raises(CheckpointError, match="shards=12, which cannot be dealt to 5"):
        split(run, 0, 5)
    with pytest.raises(CheckpointError, match="of all ranks in their order"):
        merge(run["states"][::-1])
    with pytest.raises(CheckpointError, match="needs the states of the loaders of all ranks"):
        merge([])
    with pytest.raises(CheckpointError, match="the state of a run, and that of one rank is needed"):
        merge([run])
    assert merge(state for state in run["states"]) == run
    with pytest.raises(CheckpointError, match="not in the order of their ranks"):
        split(run | {"states": run["states"][::-1]}, 0, 2)
    for rank, ranks in ((2, 2), (0, 0), (-1, 2), (0, 2.0), ("0", 2)):
        with pytest.raises(ConfigError, match="the number of a rank below it, got rank"):
            split(run, rank, ranks)
    _, later = go_on(2, None, 6, list(range(200)), 2)
    with pytest.raises(CheckpointError, match="after different batches"):
        merge([run["states"][0], later["states"][1]])
    loader = loader_of(None, np.arange(200), 2, batch_size=12, shuffle_buffer=120)
    _, items = go_on(2, None, 5, list(range(200)), 2, payload=True)
    for state, message in (
        (items["states"][0], "that of rank 0 of 2 alone, and this is rank 1 of 2"),
        (run["states"][0] | {"digest": "0"}, "damaged"),
        ({"kind": "loader", "ranks": 2}, "no whole state"),
    ):
        with pytest.raises(CheckpointError, match=message):
            of_rank(state, 1, 2)
    with pytest.raises(CheckpointError, match="rank 0 of 2 alone, and this is rank 0 of 1"):
        loader.load_state_dict(items["states"][0])
    with pytest.raises(CheckpointError, match="whole state of a run"):
        loader.load_state_dict({"kind": "run", "states": 3})


def test_an_epoch_with_an_empty_shard_has_no_state():
    with pytest.raises(AssertionError, match="a shard has no item has no state"):
        go_on(2, None, 1, [1, 2, 3], 2)


@pytest.mark.parametrize("batches", [45, 50])
def test_a_state_with_batches_made_ahead_goes_on_to_the_end_that_was_agreed(batches):
    def make():
        items = [np.int64(each) for each in range(100)]
        options = {"batch_size": 4, "shards": 1, "prefetch": 4, "augment": lambda batch, rng: batch}
        return EchoLoader(Unsized(items), 2, **options)

    with make() as loader:
        whole = [batch.tolist() for batch in loader]
        assert len(whole) == 50
        running = iter(loader)
        taken = [next(running).tolist() for _ in range(batches)]
        state = loader.state_dict()
    with make() as loader:
        loader.load_state_dict(state)
        assert loader.state_dict()["epoch"] == state["epoch"]
        taken += [batch.tolist() for batch in loader]
        again = [batch.tolist() for batch in loader]
    with make() as loader:
        loader.set_epoch(1)
        assert taken == [batch.tolist() for batch in loader]
        assert again == [batch.tolist() for batch in loader]


def test_another_state_or_epoch_takes_the_place_of_a_state_at_the_end():
    with EchoLoader(Unsized(list(map(np.int64, range(40)))), 2, batch_size=16, shards=1) as loader:
        beginning = loader.state_dict()
        running = iter(loader)
        for _ in range(5):
            next(running)
        end = loader.state_dict()
        for go_on, batches in (
            (lambda: loader.load_state_dict(end), 0),
            (lambda: loader.load_state_dict(loader.state_dict()), 5),
            (lambda: (loader.load_state_dict(end), loader.load_state_dict(beginning)), 5),
            (lambda: (loader.load_state_dict(end), loader.set_epoch(1)), 5),
        ):
            go_on()
            assert sum(1 for _ in loader) == batches
        loader.load_state_dict(end)
        assert sum(1 for _ in copy.copy(loader)) == 0


def test_an_iterator_left_behind_the_last_batch_has_nothing_left():
    with EchoLoader(map(np.int64, range(40)), 2, batch_size=16, shards=1) as loader:
        assert sum(1 for _ in itertools.islice(loader, 5)) == 5
        with pytest.warns(RuntimeWarning, match="read to its end"):
            assert list(loader) == []


@pytest.mark.parametrize("taken", [2, 4])
def test_passes_that_flow_over_uneven_ranks_go_on(taken):
    def rank_does(member):
        items = list(map(np.int64, range((20, 6)[member.rank])))
        options = {"batch_size": 10, "epochs": 3, "shuffle_buffer": 8}
        with loader_of(member, items, 2, **options) as loader:
            whole = [[batch.tolist() for batch in loader] for _ in range(3)]
        with loader_of(member, items, 2, **options) as loader:
            running = iter(loader)
            first = [next(running).tolist() for _ in range(taken)]
            state = loader.state_dict(payload=False)
        with loader_of(member, items, 2, **options) as loader:
            loader.load_state_dict(state)
            loader.set_epoch(0 if taken == 2 else 1)
            rest = [[batch.tolist() for batch in loader] for _ in range(2 if taken == 4 else 3)]
        expected = whole[1:] if taken == 4 else [whole[0][taken:], *whole[1:]]
        return rest == expected and first == whole[0][:taken]

    assert run_world(2, rank_does)[0] == [True, True]


class Touchy:
    """Fails at whatever is asked of it."""

    def __getattribute__(self, name):
        if name == "__class__":  # which isinstance() asks for
            return Touchy
        raise AssertionError(f"{name} was asked for")

    __eq__ = __bool__ = __int__ = __index__ = __iter__ = __len__ = __str__ = __format__ = None


def test_nothing_in_the_state_of_a_run_is_called_and_damage_is_found():
    _, run = go_on(2, None, 5, list(range(200)), 2)

    def replaced(value, path, new):
        if not path:
            return new
        copied = dict(value) if isinstance(value, dict) else list(value)
        copied[path[0]] = replaced(value[path[0]], path[1:], new)
        return copied

    def paths(value, path=()):
        yield path
        if isinstance(value, dict | list):
            for key in value if isinstance(value, dict) else range(len(value)):
                yield from paths(value[key], (*path, key))

    for path in paths(run):
        for new in (Touchy(), "damaged", -7, 10**12):
            damaged = replaced(run, path, new)
            for ranks in (2, 3):
                try:
                    found = of_rank(damaged, 0, ranks)
                except CheckpointError:
                    continue
                # Else it is refused later, as no state of a loader or another one.
                assert found is damaged or path[:2] == ("states", 0) or path[0] != "states", path


def test_a_state_on_one_rank_only_is_told_of():
    def rank_does(member):
        begun, new = (
            loader_of(member, np.arange(40) + member.rank, 2, batch_size=4) for _ in range(2)
        )
        batches = iter(begun)
        next(batches)
        if member.rank == 1:
            new.load_state_dict(begun.state_dict())
        with pytest.raises(EchoError, match="ranks 0 and 1 go on at different batches"):
            next(iter(new))

    run_world(2, rank_does)
