"""`shards`: the same global batches for any number of ranks, also after a resume with others."""

from collections import deque
from itertools import islice

import numpy as np
import pytest
from worlds import Told, loader_of, numbers_of, run_world

from pyecho import CheckpointError

BATCH, SHARDS, POOL = 24, 12, 240


def states_after(steps, size, items, *, source=np.array, state=None, **options):
    """Take so many global batches, maybe from a state on; return the states of all ranks."""

    def rank_does(member):
        loader = loader_of(
            member,
            source(items[member.rank :: member.size]),
            2,
            batch_size=BATCH // member.size,
            shuffle_buffer=POOL // member.size,
            shards=SHARDS,
            **options,
        )
        with loader:
            if state is not None:
                loader.load_state_dict(state)
            deque(islice(loader, steps), maxlen=0)
            return loader.state_dict(payload=False)

    return run_world(size, rank_does)[0]


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
    states = states_after(5, 2, list(range(200)))
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
    states = states_after(7, 3, items, **options)
    with pytest.raises(AssertionError, match="the state is that of rank 1 of 3, and this is"):
        states_after(1, 2, items, state=states[1], **options)
