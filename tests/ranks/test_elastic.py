"""`shards`: the same global batches for any number of ranks, also after a resume with others."""

import numpy as np
import pytest
from worlds import Told, global_batches, loader_of, numbers_of, run_world

from pyecho import CheckpointError

BATCH, SHARDS, POOL = 24, 12, 240


def go_on(size, state, steps, items, factor, *, source=np.array, ends=3, **options):
    """Take so many global batches and ends of epochs, at most; return them and all states then."""

    def rank_does(member):
        loader = loader_of(
            member,
            source(items[member.rank :: member.size]),
            factor,
            batch_size=BATCH // member.size,
            shuffle_buffer=POOL // member.size,
            shards=SHARDS,
            **options,
        )
        if state is not None:
            loader.load_state_dict(state)
        taken = []
        with loader:
            while taken.count(None) < ends and len(taken) < steps:
                for batch in loader:
                    taken.append(batch.tolist())
                    if len(taken) == steps:
                        return taken, loader.state_dict(payload=False)
                taken.append(None)
            return taken, loader.state_dict(payload=False)

    results, _ = run_world(size, rank_does)
    return global_batches([each[0] for each in results]), [each[1] for each in results]


def test_state_with_items_serves_the_rank_it_is_of():
    def make(member):
        items = np.array(numbers_of(member.rank, 100))
        return loader_of(member, items, 2, batch_size=12, shuffle_buffer=60, shards=SHARDS)

    def begins(member):
        with make(member) as loader:
            batches = iter(loader)
            for _ in range(5):
                next(batches)
            return loader.state_dict(), [batch.tolist() for batch in batches]

    begun, _ = run_world(2, begins)

    def goes_on(member):
        state, rest = begun[member.rank]
        with make(member) as loader:
            with pytest.raises(CheckpointError, match=rf"rank {1 - member.rank}\b"):
                loader.load_state_dict(begun[1 - member.rank][0])
            loader.load_state_dict(state)
            assert [batch.tolist() for batch in loader] == rest

    run_world(2, goes_on)


@pytest.mark.parametrize("changes", [{"shards": 6}, {"batch_size": 7}, {"shuffle_buffer": 60}])
def test_state_of_options_out_of_proportion_is_refused(changes):
    _, states = go_on(2, None, 5, list(range(200)), 2)
    options = {"batch_size": 8, "shuffle_buffer": 80, "shards": SHARDS}

    def rank_does(member):
        items = np.arange(200)[member.rank :: 3]
        loader_of(member, items, 2, **options).load_state_dict(states[1])
        with pytest.raises(CheckpointError):
            loader_of(member, items, 2, **options | changes).load_state_dict(states[1])

    run_world(3, rank_does)


def test_passes_that_get_longer_go_on_with_as_many_ranks():
    class Growing(Told):
        """Has more items in each later pass than it told."""

        def __iter__(self):
            items = list(map(np.int64, self.items))
            self.items = [*self.items, *range(1000, 1000 + self.length)]
            return iter(items)

    items, options = list(range(48)), {"source": Growing, "steps_per_epoch": 9}
    _, states = go_on(3, None, 7, items, 2, **options)
    with pytest.raises(AssertionError, match="the state is that of rank 1 of 3, and this is"):
        go_on(2, states[1], 10**6, items, 2, **options)
