"""Several ranks: equally many batches, every item used, one message an epoch."""

from collections import Counter
from itertools import chain

import numpy as np
import pytest
from worlds import loader_of, numbers_of, run_world

pytestmark = pytest.mark.filterwarnings("ignore:the .* items of the source, used")


@pytest.mark.parametrize(
    ("options", "begun"), [({}, 3), ({"epochs": 3}, 1), ({"steps_per_epoch": 4}, 1)]
)
def test_ranks_send_one_message_when_they_are_made_and_one_when_passes_begin(options, begun):
    def rank_does(member):
        items = numbers_of(member.rank, (40, 25)[member.rank])
        with loader_of(member, np.array(items), 2, batch_size=4, **options) as loader:
            return [sum(1 for _ in loader) for _ in range(3)]

    results, world = run_world(2, rank_does)
    assert results[0] == results[1]
    assert [len(sent) for sent in world.messages] == [1 + begun] * 2
    assert len({len(message) for sent in world.messages for message in sent}) == 1


class Buckets:
    """Tells and has another number of items in each epoch, like a sampler that makes buckets."""

    LENGTHS = (40, 10, 20, 70, 12)

    def __init__(self, rank=0):
        self.rank, self.epoch = rank, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.LENGTHS[self.epoch] + 5 * self.rank

    def __iter__(self):
        return iter(numbers_of(self.rank, len(self)))


def test_length_is_asked_once_the_source_knows_its_epoch():
    def rank_does(member):
        with loader_of(member, Buckets(member.rank), 2, batch_size=4) as loader:
            return [([batch.tolist() for batch in loader], len(loader)) for _ in Buckets.LENGTHS]

    results, _ = run_world(2, rank_does)
    for rank, epochs in enumerate(results):
        for (batches, told), length in zip(epochs, Buckets.LENGTHS, strict=True):
            uses = 2 * (length + 5)
            assert told == len(batches) == -(-uses // 4)
            counts = Counter(chain(*batches))
            assert set(counts) == set(numbers_of(rank, length + 5 * rank))
            each = uses // len(counts)
            assert set(counts.values()) <= {each, each + 1}
            assert counts.total() == uses


@pytest.mark.parametrize("options", [{}, {"prefetch": 1, "shuffle_buffer": 8}, {"threads": 2}])
def test_state_of_a_source_whose_length_changes_goes_on(options):
    def rank_does(member):
        def make():
            return loader_of(member, Buckets(member.rank), 2, batch_size=4, **options)

        with make() as loader:
            whole = [[batch.tolist() for batch in loader] for _ in Buckets.LENGTHS]
        for epoch, batches in enumerate(whole):
            with make() as loader, make() as other:
                loader.set_epoch(epoch)
                running = iter(loader)
                assert [next(running).tolist() for _ in range(4)] == batches[:4]
                other.load_state_dict(loader.state_dict())
                rest = [[batch.tolist() for batch in other] for _ in whole[epoch:]]
            assert rest == [batches[4:], *whole[epoch + 1 :]]

    run_world(2, rank_does)


def test_augment_draws_apart_on_each_rank():
    def rank_does(member):
        def draw(batch, rng):
            return rng.bit_generator.random_raw()

        with loader_of(member, numbers_of(member.rank, 4), 2, augment=draw) as loader:
            return list(loader)

    first, second = run_world(2, rank_does)[0]
    assert len({*first, *second}) == 16


def test_groups_need_a_rank_a_size_and_gather():
    class Alone:
        rank, size = 0, 1

        def gather(self, values):
            return np.array([values])

    with loader_of(Alone(), [1, 2], 2) as loader:
        assert sorted(loader) == [1, 1, 2, 2]
