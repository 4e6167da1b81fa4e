"""Several ranks: what does not fit together is an error on every rank that says what and where."""

import itertools
import re

import numpy as np
import pytest
from interrupt_points import Interrupts
from worlds import Member, Told, Unsized, World, errors_of, loader_of, numbers_of, run_world

from pyecho import Adaptive, ConfigError, EchoError, EchoLoader
from pyecho.run.flow import Flow
from pyecho.run.pipeline import Pipeline


def told_of(messages, rank, *words):
    """Return True if each message names the rank and has one of the words."""
    return all(
        str(rank) in re.findall(r"\d+", each) and re.search("|".join(words), each)
        for each in messages
    )


@pytest.mark.parametrize(
    ("lengths", "options"),
    [
        ((5, 0), {}),
        ((5, 0), {"steps_per_epoch": 3}),
        ((8, 1), {"shards": 4}),
        ((8, 3), {"shards": 8, "shuffle_buffer": 4}),
        ((8, 0), {"factor": Adaptive(3), "steps_per_epoch": 3}),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:the source.*yielded nothing")
def test_rank_without_an_item_for_each_stream_is_named_on_every_rank(lengths, options):
    def rank_does(member):
        source = Told(numbers_of(member.rank, lengths[member.rank]))
        list(loader_of(member, source, **{"factor": 2, "batch_size": 2} | options))

    assert told_of(errors_of(2, rank_does), 1, "item")


def test_rank_with_far_fewer_items_is_named_on_every_rank_of_a_long_run():
    def rank_does(member):
        source = np.arange([1000, 10][member.rank])
        next(iter(loader_of(member, source, 2, batch_size=2, epochs=2**13)))

    assert told_of(errors_of(2, rank_does), 1, "similar lengths")


@pytest.mark.parametrize("option", ["seed", "shuffle_buffer", "batch_size", "factor"])
def test_options_that_differ_are_told_of_on_every_rank(option):
    def rank_does(member):
        options = {"factor": 2, "batch_size": 2, "shuffle_buffer": 8, "seed": 0}
        options[option] += member.rank == 2
        list(loader_of(member, numbers_of(member.rank, 9), **options))

    assert told_of(errors_of(3, rank_does), 2, f"other values of {option};")


def test_epochs_that_differ_are_told_of_on_every_rank():
    def rank_does(member):
        loader = loader_of(member, numbers_of(member.rank, 9), 2, batch_size=1)
        loader.set_epoch(4 * (member.rank == 1))
        list(loader)

    messages = errors_of(3, rank_does)
    assert told_of(messages, 1, "epoch")
    assert told_of(messages, 4, "epoch")


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_that_begin_with_the_same_item_are_warned_of(ranks):
    def rank_does(member):
        return sum(1 for _ in loader_of(member, numbers_of(0, 9), 2, batch_size=3))

    with pytest.warns(RuntimeWarning, match=f"all {ranks} ranks begin with the same first item"):
        assert run_world(ranks, rank_does)[0] == [6] * ranks


@pytest.mark.parametrize("taken", [1, 3])
def test_positions_that_differ_are_told_of_on_every_rank(taken):
    def rank_does(member):
        source = np.arange(40) + 1000 * member.rank
        begun, new = (loader_of(member, source, 2, batch_size=4) for _ in range(2))
        batches = iter(begun)
        for _ in range(taken):
            next(batches)
        if member.rank == 1:
            new.load_state_dict(begun.state_dict())
        next(iter(new))

    assert told_of(errors_of(2, rank_does), 1, "batch", "position")


@pytest.mark.parametrize("epochs", [None, 2])
@pytest.mark.parametrize("kind", [Unsized, iter])
def test_source_of_unknown_length_needs_steps_per_epoch(kind, epochs):
    def rank_does(member):
        items = numbers_of(member.rank, 9)
        with pytest.raises(ConfigError, match="steps_per_epoch") as raised:
            loader_of(member, kind(items) if member.rank == 1 else items, 2, epochs=epochs)
        raise raised.value

    assert told_of(errors_of(3, rank_does), 1, "steps_per_epoch")


@pytest.mark.parametrize(
    "options",
    [
        {"factor": Adaptive(4)},
        {"factor": Adaptive(4), "epochs": 2},
        {"factor": 2, "unique_in_batch": True},
    ],
    ids=str,
)
def test_options_that_leave_the_number_of_batches_open_need_steps(options):
    def rank_does(member):
        with pytest.raises(ConfigError, match="steps_per_epoch") as raised:
            loader_of(member, numbers_of(member.rank, 9), batch_size=2, **options)
        raise raised.value

    errors_of(2, rank_does)
    if "epochs" not in options:
        with pytest.raises(ConfigError, match=r"steps_per_epoch|shards"):
            EchoLoader([1, 2, 3], batch_size=2, shards=2, **options)


def test_shards_that_do_not_fit_are_refused():
    def rank_does(member):
        loader_of(member, numbers_of(member.rank, 9), 2, shards=3)

    assert all(re.search("multiple of.* 2, got 3", each) for each in errors_of(2, rank_does))
    with pytest.raises(ConfigError, match="shuffle_buffer to 4 or more"):
        EchoLoader([1] * 9, 2, shuffle_buffer=3, shards=4)
    with pytest.raises(ConfigError, match="must be a multiple of shards"):
        EchoLoader([1] * 9, 2, batch_size=3, shards=4, steps_per_epoch=3)
    with pytest.raises(ConfigError, match="steps_per_epoch"):
        EchoLoader(Unsized([1] * 9), 2, batch_size=4, shards=4, shuffle_buffer=4)


@pytest.mark.parametrize("options", [{}, {"shards": 4}, {"threads": 2}, {"batch_size": None}])
def test_source_with_fewer_items_than_its_length_is_an_error_with_both_numbers(options):
    options = {"factor": 2, "batch_size": 4, "shuffle_buffer": 8} | options

    def rank_does(member):
        source = Told(numbers_of(member.rank, 40 - 27 * member.rank), 40)
        taken = set()
        with loader_of(member, source, **options) as loader:
            if member.rank == 0:
                return sum(1 for _ in loader)
            with pytest.raises(EchoError, match="Told") as raised:
                for batch in loader:
                    taken |= set(np.atleast_1d(np.array(batch)).tolist())
        assert told_of([str(raised.value)], 13, "item")
        assert told_of([str(raised.value)], 40, "item")
        return taken

    results, _ = run_world(2, rank_does)
    assert results[0] == 80 // (options["batch_size"] or 1)
    assert results[1] <= set(range(1000, 1013))


class Waning:
    """Has fewer items in each pass."""

    def __init__(self, rank, *lengths):
        self.rank, self.lengths = rank, iter(lengths)

    def __iter__(self):
        return iter(numbers_of(self.rank, next(self.lengths)))


@pytest.mark.parametrize("factor", [2, Adaptive(2)])
def test_pass_that_is_empty_later_is_an_error(factor):
    def rank_does(member):
        source = Waning(member.rank, 40, 0 if member.rank else 40, 40, 40)
        with loader_of(member, source, factor, batch_size=4, steps_per_epoch=9) as loader:
            for _ in range(3):
                assert sum(1 for _ in loader) == 9

    with pytest.raises(AssertionError, match=r"source \(Waning\) has no item"):
        run_world(2, rank_does)


def test_source_that_fails_at_once_is_told_of_on_every_rank():
    class Failing(Unsized):
        def __iter__(self):
            raise OSError("the disk is gone")

        def __len__(self):
            return 3

    def rank_does(member):
        source = (Failing if member.rank == 1 else Told)(numbers_of(member.rank, 3))
        with pytest.raises(OSError if member.rank == 1 else EchoError) as raised:
            list(loader_of(member, source, 2, batch_size=1))
        return str(raised.value)

    results, _ = run_world(3, rank_does)
    assert results[1] == "the disk is gone"
    assert told_of([results[0], results[2]], 1, "failed")


@pytest.mark.parametrize("at", range(1, 4))
def test_rank_whose_beginning_was_cut_short_keeps_what_the_ranks_have_settled(at):
    def rank_does(member):
        loader = loader_of(member, numbers_of(member.rank, 9), 2, batch_size=2)
        taken, batches = [], iter(loader)
        if member.rank == 1:
            interrupts = Interrupts(at, functions=[Flow.begin, Pipeline.begin])
            assert not interrupts.strikes(lambda: taken.extend(itertools.islice(batches, 1)))
        return [batch.tolist() for batch in itertools.chain(taken, batches, loader)]

    results, world = run_world(2, rank_does)
    assert [len(result) for result in results] == [18, 18]
    assert [len(sent) for sent in world.messages] == [3, 3]


@pytest.mark.parametrize("found", [None, [[1]], [[1], [1], [1]], [[1], []], [[1], ["1"]]])
def test_group_that_does_not_gather_is_told_of(found):
    class Mute(Member):
        def gather(self, values):
            return found

    with pytest.raises(ConfigError, match=r"gather\(\) of the group \(Mute\) must return 2 lists"):
        loader_of(Mute(World(2), 0), [1], 2)


def test_loader_of_ranks_inside_another_one_is_refused():
    def rank_does(member):
        loader = loader_of(member, [np.int64(member.rank)], 2, batch_size=1)
        with pytest.raises(ConfigError, match="inner loader has a group"):
            EchoLoader(loader, 2)

    run_world(2, rank_does)


@pytest.mark.parametrize("options", [{}, {"pad_last": True}, {"shards": 4}], ids=str)
def test_length_that_the_first_batch_of_a_rank_disproves_is_an_error_on_every_rank(options):
    torch = pytest.importorskip("torch")

    def rank_does(member):
        kept = slice(None, None, 1 + (member.rank == 1))
        source = torch.utils.data.DataLoader(
            range(12), batch_size=4, collate_fn=lambda items: np.array(items[kept])
        )
        list(loader_of(member, source, 2, batch_size=2, unbatch=True, **options))

    assert told_of(errors_of(2, rank_does), 1, "does not tell")


def test_error_of_another_ranks_state_tells_where_one_state_serves_all():
    states = {}

    def rank_does(member):
        source = Unsized(numbers_of(member.rank, 5 + member.rank))
        loader = loader_of(member, source, 2, batch_size=2, steps_per_epoch=9)
        assert sum(1 for _ in loader) == 9
        states[member.rank] = loader.state_dict(payload=False)

    run_world(2, rank_does)

    def load_other(member):
        loader = loader_of(member, Unsized([]), 2, batch_size=2, steps_per_epoch=9)
        loader.load_state_dict(states[1 - member.rank])

    errors = errors_of(2, load_other)
    assert told_of(errors, 0, "serves all only if passes have one length")
    assert told_of(errors, 1, "load that of rank [01];")
