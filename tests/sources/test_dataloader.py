"""A DataLoader over a map-style dataset goes on where it was, whatever the seed of the process."""

import copy
import itertools
import multiprocessing

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import pyecho
import pyecho.torch
from pyecho.state.loaded import digest

ITEMS = 53


class Rows:
    """A map-style dataset that counts what it loads, in this process."""

    def __init__(self):
        self.loaded = []

    def __len__(self):
        return ITEMS

    def __getitem__(self, index):
        self.loaded.append(index)
        return {"index": index, "row": torch.full((2,), float(index))}


def shuffled(dataset, **more):
    return DataLoader(dataset, batch_size=5, shuffle=True, **more)


def with_own_generator(dataset, **more):
    generator = torch.Generator().manual_seed(torch.initial_seed())
    return DataLoader(dataset, batch_size=5, shuffle=True, generator=generator, **more)


def loader_of(make, seed, options, **more):
    torch.manual_seed(seed)
    dataset = Rows()
    loader = pyecho.torch.EchoLoader(make(dataset, **more), 2, with_info=True, **options)
    return dataset, loader


def plain(emission):
    batch, info = emission
    return np.atleast_1d(batch["index"]).tolist(), info.source_index.tolist(), info.use.tolist()


def epochs(loader, count=3):
    return [[plain(each) for each in loader] for _ in range(count)]


def test_skipping_more_passes_than_can_be_drawn_again_is_refused():
    _, loader = loader_of(with_own_generator, 1, {"steps_per_epoch": 100_000})
    loader.skip_first_batches(90_000)
    with pytest.raises(pyecho.CheckpointError, match="leave out generator="):
        next(iter(loader))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "persistent_workers", "options"),
    [
        (shuffled, True, {"shuffle_buffer": 4}),
        (with_own_generator, False, {"batch_size": 4, "unbatch": True, "epochs": 3}),
    ],
)
def test_resume_with_workers_is_exact(make, persistent_workers, options):
    """Without them the machine says so."""
    workers = {"num_workers": 2, "persistent_workers": persistent_workers}
    expected = epochs(loader_of(make, 1, options)[1])
    _, loader = loader_of(make, 1, options, **workers)
    found = list(map(plain, itertools.islice(loader, 5)))
    state = loader.state_dict(payload=False)
    loader.close()
    dataset, other = loader_of(make, 99, options, **workers)
    other.load_state_dict(state)
    assert [found + list(map(plain, other)), *epochs(other, 2)] == expected
    other.close()
    assert dataset.loaded == []


def test_resume_loads_nothing_that_it_skips():
    options = {"batch_size": 4, "unbatch": True, "shuffle_buffer": 6}
    _, loader = loader_of(shuffled, 1, options)
    for _ in itertools.islice(loader, 20):
        pass
    state = loader.state_dict()
    taken = loader.stats().read
    loader.close()
    dataset, other = loader_of(shuffled, 2, options)
    other.load_state_dict(state)
    for _ in other:
        pass
    assert len(dataset.loaded) <= ITEMS - taken + 5 + 40 // 2


def test_order_depends_on_the_seed_of_the_process_and_on_the_epoch():
    one, again, other = (epochs(loader_of(shuffled, seed, {})[1], 2) for seed in (1, 1, 2))
    assert one == again
    assert one != other
    assert one[0] != one[1]


def test_global_generator_is_drawn_from_once_and_by_the_consumer():
    torch.manual_seed(3)
    loader = pyecho.torch.EchoLoader(shuffled(Rows()), 2, epochs=5)
    torch.empty((), dtype=torch.int64).random_()
    expected = torch.rand(4)
    torch.manual_seed(3)
    for _ in range(5):
        list(loader)
    assert torch.equal(torch.rand(4), expected)


def test_loader_of_the_user_stays_as_it_is():
    given = with_own_generator(Rows())
    before = dict(vars(given))
    order = [batch["index"].tolist() for batch in copy.deepcopy(given)]
    echoed = pyecho.torch.EchoLoader(given, 1)
    assert [batch["index"].tolist() for batch in echoed] == order  # a generator is its owner's
    assert vars(given) == before


def test_batches_that_lose_rows_are_read_again():
    def halved(rows):
        return {"index": torch.tensor([row["index"] for row in rows[::2]])}

    def make(seed):
        torch.manual_seed(seed)
        source = shuffled(Rows(), collate_fn=halved)
        return pyecho.torch.EchoLoader(source, 2, batch_size=4, unbatch=True, steps_per_epoch=9)

    expected = [batch["index"].tolist() for batch in make(1)]
    loader = make(1)
    found = [batch["index"].tolist() for batch in itertools.islice(loader, 4)]
    other = make(2)
    other.load_state_dict(loader.state_dict(payload=False))
    assert found + [batch["index"].tolist() for batch in other] == expected


def test_order_of_a_state_needs_such_a_source():
    _, loader = loader_of(shuffled, 1, {})
    next(iter(loader))
    other = pyecho.torch.EchoLoader([*range(11)], 2, with_info=True)
    other.load_state_dict(loader.state_dict(payload=False))
    with pytest.raises(pyecho.CheckpointError, match="order of a DataLoader over a map-style"):
        next(iter(other))


def test_damaged_states_of_generators_are_refused():
    _, loader = loader_of(with_own_generator, 1, {})
    next(iter(loader))
    state = loader.state_dict(payload=False)
    for begin in ([], [np.zeros(3, np.uint8)], [np.zeros(5056, np.uint8)]):
        state["order"]["begins"] = [[0, begin]]
        state["digest"] = digest({k: v for k, v in state.items() if k != "digest"})
        _, other = loader_of(with_own_generator, 1, {})
        other.load_state_dict(state)
        with pytest.raises(pyecho.CheckpointError, match="generator"):
            list(map(plain, other))


def test_persistent_workers_end_with_the_loader():
    before = len(multiprocessing.active_children())
    _, loader = loader_of(shuffled, 1, {}, num_workers=2, persistent_workers=True)
    epochs(loader, 2)
    assert len(multiprocessing.active_children()) == before + 2
    loader.close()
    assert len(multiprocessing.active_children()) == before


def test_state_at_the_end_of_a_pass_goes_on_with_workers_that_serve_all_passes():
    def loader():
        options = {"num_workers": 1, "persistent_workers": True, "shuffle": True}
        source = DataLoader(torch.arange(16), 8, **options)
        options = {"batch_size": 4, "unbatch": True, "shuffle_buffer": 1, "threads": 0}
        return pyecho.torch.EchoLoader(source, 1, **options)

    first, second = loader(), loader()
    batches = iter(first)
    for _ in range(3):
        next(batches)
    second.load_state_dict(first.state_dict())
    assert [batch.tolist() for batch in second] == [batch.tolist() for batch in batches]
