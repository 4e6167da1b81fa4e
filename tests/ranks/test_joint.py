"""Several ranks with an adaptive factor, which they decide together."""

import itertools
import random
import time
from collections import Counter

import numpy as np
import pytest
from worlds import Unsized, loader_of, run_world

from pyecho import Adaptive, CheckpointError, ConfigError, EchoError
from pyecho.run.ranks import JOINT_AHEAD, JOINT_STEPS
from pyecho.state.reshard import merge, split
from pyecho.state.state import digest

pytestmark = [
    pytest.mark.filterwarnings("ignore:the .* items of the source|the source"),
    # A state that is kept holds the batches that were made ahead.
    pytest.mark.filterwarnings("ignore:the consumer keeps batches"),
]


class Slow:
    """Numbers from 1000 * rank on, which come now and then late; `rows`: in batches."""

    def __init__(self, rank, count, late=0.0, rows=None, told=None):
        self.items = np.arange(1000 * rank, 1000 * rank + count)
        self.late, self.rows, self.told = late, rows, count if told is None else told
        self.random = random.Random(rank)

    def __len__(self):
        return -(-self.told // self.rows) if self.rows else self.told

    def __iter__(self):
        for place in range(0, len(self.items), self.rows or 1):
            if self.random.random() < self.late:
                time.sleep(self.random.random() * 3e-3)
            yield self.items[place : place + self.rows] if self.rows else self.items[place]


def taken_from(emission):
    """Return the numbers of a batch, their places in the source, and their uses."""
    batch, info = emission
    return [np.atleast_1d(each).tolist() for each in (batch, info.source_index, info.use)]


def epochs_of(loader, epochs=2):
    return [[taken_from(each) for each in loader] for _ in range(epochs)]


def world_of(case):
    """Return the lengths of the sources of all ranks, their kind, the factor, and options."""
    draw = random.Random(case)
    lengths = [draw.choice([0, 1, 5, draw.randrange(200)]) for _ in range(draw.choice([2, 3]))]
    least = draw.choice([1, 1, 2])
    factor = Adaptive(
        draw.choice([least, 3, 8]), min=least, max_age=draw.choice([None, None, 2, 15])
    )
    rows = draw.choice([None, 1, 4, 16])
    options = {
        "batch_size": rows,
        "shuffle_buffer": max(rows or 1, draw.choice([1, 10, 64])),
        "seed": draw.randrange(99),
        "prefetch": draw.choice([1, 2, 7]),
        "threads": draw.choice([None, 0, 2]),
    }
    kind = draw.choice(["list", "slow", "slow", "array", "unsized"])
    if rows is not None:
        options["unique_in_batch"] = draw.random() < 0.3
        options["drop_last"] = draw.random() < 0.2
        if draw.random() < 0.3:
            kind, options["unbatch"] = "batches", True
    if draw.random() < 0.3:
        options |= {"augment": lambda batch, rng: batch, "augment_workers": 2}
    if draw.random() < 0.3:
        options["steps_per_epoch"] = draw.randrange(1, 40)
        lengths = [max(1, each) for each in lengths]
    elif kind == "unsized":
        kind = "list"
    return lengths, kind, factor, options


def source_of(kind, rank, count, late):
    if kind == "array":
        return np.arange(1000 * rank, 1000 * rank + count)
    if kind == "batches":
        return list(Slow(rank, count, rows=7))
    if kind == "unsized":
        return Unsized(Slow(rank, count))
    return list(Slow(rank, count)) if kind == "list" else Slow(rank, count, late)


def check_world(case):
    lengths, kind, factor, options = world_of(case)

    def rank_does(member, factor=factor, late=0.3):
        source = source_of(kind, member.rank, lengths[member.rank], late * (member.rank == 0))
        with loader_of(member, source, factor, with_info=True, **options) as loader:
            return epochs_of(loader), loader.stats()

    results, _ = run_world(len(lengths), rank_does)
    epochs, stats = zip(*results, strict=True)
    log = stats[0].log
    for rank, whole in enumerate(epochs):
        assert [[len(batch[0]) for batch in epoch] for epoch in whole] == [
            [len(batch[0]) for batch in epoch] for epoch in epochs[0]
        ], case
        if "steps_per_epoch" in options:
            assert [len(epoch) for epoch in whole] == [options["steps_per_epoch"]] * 2
        else:
            assert {e: each.tolist() for e, each in stats[rank].log.items()} == {
                e: each.tolist() for e, each in log.items()
            }, case
        for epoch in whole:
            uses = Counter()
            for numbers, places, ordinals in epoch:
                if lengths[rank]:
                    assert numbers == [1000 * rank + place for place in places]
                uses.update(n for n, use in zip(numbers, ordinals, strict=True) if use >= 0)
            if "steps_per_epoch" not in options:
                assert max(uses.values(), default=0) <= factor.max
                if not options.get("drop_last"):
                    assert len(uses) == lengths[rank]
                    assert min(uses.values(), default=factor.min) >= factor.min

    longest = max((stat.log for stat in stats), key=lambda log: sum(map(len, log.values())))
    again, _ = run_world(
        len(lengths), lambda member: rank_does(member, factor.replay(longest), late=0.1)
    )
    assert tuple(each for each, _ in again) == epochs


@pytest.mark.parametrize("case", range(40))
def test_ranks_take_the_same_decisions(case):
    check_world(case)


@pytest.mark.stress
def test_five_hundred_worlds():
    for case in range(500):
        check_world(1000 + case)


def resumed(case, payload):
    """Check that a loader goes on from a state as it would have without."""
    lengths, kind, factor, options = world_of(case)
    lengths = [each + 60 for each in lengths]  # a rank without items has no state
    at = random.Random(case).randrange(1, 12)

    def source(rank):
        return source_of(kind, rank, lengths[rank], 0.2 * (rank == 0))

    def begins(member):
        with loader_of(member, source(member.rank), factor, with_info=True, **options) as loader:
            batches = iter(loader)
            before = [taken_from(each) for each in itertools.islice(batches, at)]
            assert len(before) == at or "steps_per_epoch" in options
            state = loader.state_dict(payload=payload)
            rest = [taken_from(each) for each in batches]
            return before, state, rest, epochs_of(loader, 1), loader.stats().log

    begun, _ = run_world(len(lengths), begins)
    logs = max((log for *_, log in begun), key=lambda log: sum(map(len, log.values())))

    def goes_on(member, factor):
        with loader_of(member, source(member.rank), factor, with_info=True, **options) as loader:
            loader.load_state_dict(begun[member.rank][1])
            return epochs_of(loader, 2), loader.stats().log

    by_itself, _ = run_world(len(lengths), lambda member: goes_on(member, factor))
    assert len({str([len(epoch) for epoch in epochs]) for epochs, _ in by_itself}) == 1
    decided = JOINT_STEPS - at % JOINT_STEPS + JOINT_AHEAD if at >= JOINT_STEPS else JOINT_AHEAD
    for (epochs, log), (before, _, rest, *_) in zip(by_itself, begun, strict=True):
        assert epochs[0][:decided] == rest[:decided]  # what was agreed on
        if "steps_per_epoch" not in options:
            assert {e: each.tolist() for e, each in log.items()} == {
                e: each.tolist() for e, each in by_itself[0][1].items()
            }
            uses = Counter(
                number
                for numbers, _, ordinals in before + epochs[0]
                for number, use in zip(numbers, ordinals, strict=True)
                if use >= 0
            )
            assert set(uses.values()) <= set(range(factor.min, factor.max + 1))

    replayed, _ = run_world(len(lengths), lambda member: goes_on(member, factor.replay(logs)))
    for (epochs, _), (_, _, rest, following, _) in zip(replayed, begun, strict=True):
        assert epochs[0] == rest
        assert epochs[1:] == following


@pytest.mark.parametrize("payload", [True, False])
@pytest.mark.parametrize("case", range(100, 120))
def test_states_go_on_with_the_decisions_that_were_taken(case, payload):
    resumed(case, payload)


def test_states_of_a_run():
    def begins(member):
        with loader_of(
            member, Slow(member.rank, 90 - member.rank), Adaptive(4), batch_size=4
        ) as it:
            batches = iter(it)
            for _ in range(11):
                next(batches)
            state = it.state_dict(payload=False)
            return state, [batch.tolist() for batch in itertools.islice(batches, JOINT_AHEAD)]

    begun, _ = run_world(2, begins)

    def goes_on(member, state):
        source = Slow(member.rank, 90 - member.rank)
        with loader_of(member, source, Adaptive(4), batch_size=4) as loader:
            loader.load_state_dict(state)
            return [batch.tolist() for batch in itertools.islice(loader, JOINT_AHEAD)]

    run = merge([state for state, _ in begun])
    for state in (run, begun[0][0], begun[1][0]):  # each tells of the whole run
        results, _ = run_world(2, lambda member, state=state: goes_on(member, state))
        assert results == [rest for _, rest in begun]
    with pytest.raises(CheckpointError, match="taken with 2 of them, not with 3"):
        split(run, 0, 3)


def test_a_source_that_stops_holds_up_all_ranks_and_no_rank_goes_ahead():
    class Stops(Slow):
        def __iter__(self):
            for place, item in enumerate(super().__iter__()):
                if place == 40:
                    time.sleep(0.2)
                yield item

    def rank_does(member):
        kind = Stops if member.rank else Slow
        with loader_of(member, kind(member.rank, 80), Adaptive(3), batch_size=4) as loader:
            return [batch.tolist() for batch in loader], loader.stats()

    results, _ = run_world(2, rank_does)
    (first, _), (second, stats) = results
    assert [[each - 1000 for each in batch] for batch in second] == first
    assert stats.log[0].sum() == 81


def test_a_pass_that_ends_at_a_look_is_not_the_end_of_a_run_that_goes_on():
    def rank_does(member, state=None):
        gather, met = member.gather, False

        def gather_what_has_arrived(values):
            nonlocal met
            if met or len(values) > 1:
                return gather(values)
            found = gather([min(20 if state is None else 21, *values)])  # one more than a pass
            met = min(found) == [21]
            return found

        member.gather = gather_what_has_arrived
        options = {"batch_size": 2, "shuffle_buffer": 4, "steps_per_epoch": 40}
        with loader_of(member, Slow(member.rank, 20), Adaptive(8), **options) as loader:
            if state is not None:
                loader.load_state_dict(state[member.rank])
            batches = iter(loader)
            for _ in range(3 if state is None else 35):
                next(batches)
            assert met or state is None
            return loader.state_dict(payload=False)

    state, _ = run_world(2, rank_does)
    states, _ = run_world(2, lambda member: rank_does(member, state))
    assert states[0]["flow"]["knots"][-1][0] < 100  # more is to be decided


@pytest.mark.parametrize(("lengths", "factor"), [((50, 21), Adaptive(4)), ((30, 0), 2)])
def test_columns_that_are_lists_are_cut(lengths, factor):
    def rank_does(member):
        numbers = range(1000 * member.rank, 1000 * member.rank + lengths[member.rank])
        batches = [
            {"x": np.array(numbers[at : at + 8]), "name": list(map(str, numbers[at : at + 8]))}
            for at in range(0, len(numbers), 8)
        ]
        with loader_of(member, batches, factor, batch_size=4, unbatch=True) as loader:
            taken = list(loader)
        assert all(list(map(str, batch["x"])) == list(batch["name"]) for batch in taken)
        return len(taken)

    results, _ = run_world(2, rank_does)
    assert results[0] == results[1]


def test_states_without_the_decisions_of_the_ranks_are_refused():
    def state_of(member):
        with loader_of(member, Slow(member.rank, 90), Adaptive(4), batch_size=4) as loader:
            batches = iter(loader)
            next(batches)
            return loader.state_dict()

    states, _ = run_world(2, state_of)
    for knots in ([], [[1, 0]]):
        state = states[0] | {"flow": states[0]["flow"] | {"knots": knots}}
        state["digest"] = digest(state)

        def load(member, state=state):
            loader_of(member, Slow(member.rank, 90), Adaptive(4), batch_size=4).load_state_dict(
                state if member.rank == 0 else states[1]
            )

        with pytest.raises(CheckpointError, match="knots that cannot be"):
            run_and_raise(load)


def test_few_numbers_are_gathered():
    def rank_does(member):
        source = Slow(member.rank, 3000)
        with loader_of(member, source, Adaptive(4), batch_size=4, shuffle_buffer=8) as loader:
            return sum(1 for _ in loader)

    results, world = run_world(2, rank_does)
    # The length and the beginning; behind batches 1, 2, 4, 8 and every 8th, up to the end.
    assert world.calls <= 2 + 4 + results[0] // JOINT_STEPS
    assert world.numbers - world.calls <= 12


@pytest.mark.parametrize("told", [3, 9, 30])
def test_sources_whose_length_is_wrong_do_no_harm(told):
    def rank_does(member):
        source = Slow(1, 9, told=told) if member.rank else Slow(0, 12)
        with loader_of(member, source, Adaptive(2), batch_size=2) as loader:
            return sum(1 for _ in loader), loader.stats().fresh

    results, _ = run_world(2, rank_does)
    assert results == [(results[0][0], max(12, told))] * 2


def run_and_raise(rank_does):
    try:
        run_world(2, rank_does)
    except AssertionError as error:
        raise error.__cause__ from None


class Stateful(Slow):
    """A source with a state of its own."""

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


@pytest.mark.parametrize(
    ("make", "options", "why"),
    [
        (
            lambda rank: Unsized([rank]),
            {},
            "tell how many examples or items they have, and that of rank 0",
        ),
        (lambda rank: iter([rank]), {}, "or steps_per_epoch="),
        (lambda rank: iter([rank]), {"steps_per_epoch": 3}, "more than once, and that of rank 0"),
        (lambda rank: Slow(rank, rank), {"steps_per_epoch": 3}, "rank 0 has none"),
        (lambda rank: Stateful(rank, 3 + rank), {}, r"they have \[3, 4\] items"),
        (lambda rank: Slow(rank, 3), {"epochs": 2}, "steps_per_epoch= in place of epochs="),
        (lambda rank: Slow(rank, 3), {"shards": 2}, "leave out shards="),
    ],
)
def test_what_cannot_be_is_refused(make, options, why):
    with pytest.raises(ConfigError, match=why):
        run_and_raise(
            lambda member: list(
                loader_of(member, make(member.rank), Adaptive(4), batch_size=1, **options)
            )
        )


def test_other_logs_are_refused():
    with pytest.raises(ConfigError, match="other options"):
        run_and_raise(
            lambda member: list(
                loader_of(
                    member,
                    Slow(member.rank, 9),
                    Adaptive(4).replay({0: [9 + member.rank]}),
                    batch_size=1,
                )
            )
        )


def test_a_stateful_source_that_ends_early_is_told_of():
    def rank_does(member):
        source = Stateful(member.rank, 5, told=8)
        ended = pytest.raises(EchoError, match="has ended after 5 items, and was to yield 8")
        with loader_of(member, source, Adaptive(2), batch_size=1) as loader, ended:
            for _ in loader:
                pass

    run_world(2, rank_does)
