"""Epochs: each iter() is one; they differ, and the same (seed, epoch) gives the same output."""

import numpy as np
import pytest
from rows import rows_of

import pyecho


def loader_of(source=range(40), factor=2.5, **arguments):
    return pyecho.EchoLoader(source, factor, shuffle_buffer=10, **arguments)


def test_epochs_differ_in_order():
    loader = loader_of(factor=2)
    first, second = list(loader), list(loader)
    assert first != second
    assert sorted(first) == sorted(second)


def test_epochs_differ_in_which_items_a_fraction_gives_one_use_more():
    loader = loader_of()
    counts = [tuple(np.bincount(list(loader), minlength=40)) for _ in range(3)]
    assert len(set(counts)) == 3


def test_epochs_are_reproducible_by_a_new_loader():
    one, other = loader_of(seed=4), loader_of(seed=4)
    assert [list(one) for _ in range(3)] == [list(other) for _ in range(3)]


def test_set_epoch_chooses_the_next_epoch():
    loader = loader_of()
    epochs = [list(loader) for _ in range(3)]
    for epoch in (2, 0, 1):
        loader.set_epoch(epoch)
        assert list(loader) == epochs[epoch]
    assert list(loader) == epochs[2], "and the one after it follows"


def test_an_epoch_that_was_abandoned_counts():
    loader, other = loader_of(), loader_of()
    next(iter(loader))
    other.set_epoch(1)
    assert list(loader) == list(other)


def test_an_epoch_that_never_began_does_not_count():
    source = []
    loader = loader_of(source)
    with pytest.raises(pyecho.EchoError):
        iter(loader)
    source += range(40)
    assert list(loader) == list(loader_of())


def test_set_epoch_is_passed_on_to_source_and_sampler():
    class Told:
        told = None

        def set_epoch(self, epoch):
            self.told = epoch

    class Source(Told, list):
        sampler = Told()

    source = Source(range(3))
    pyecho.EchoLoader(source).set_epoch(7)
    assert (source.told, source.sampler.told) == (7, 7)


def test_a_distributed_sampler_is_told():
    data = pytest.importorskip("torch").utils.data
    sampler = data.DistributedSampler(range(10), num_replicas=2, rank=0, shuffle=True)
    pyecho.EchoLoader(data.DataLoader(range(10), sampler=sampler)).set_epoch(5)
    assert sampler.epoch == 5


@pytest.mark.parametrize("epoch", [-1, 1.5, "1", None])
def test_a_wrong_epoch_is_refused(epoch):
    with pytest.raises(pyecho.ConfigError, match="epoch must be"):
        loader_of().set_epoch(epoch)


def test_a_generator_that_was_read_to_its_end_says_so_in_the_second_epoch():
    loader = pyecho.EchoLoader(number for number in range(3))
    assert len(list(loader)) == 6
    with pytest.raises(
        pyecho.EchoError, match=r"generator.*yielded nothing.*can be iterated again"
    ):
        list(loader)


def test_two_iterations_of_one_loader_side_by_side_do_not_mix():
    loader, other = loader_of(), loader_of()
    one, two = iter(loader), iter(loader)
    mixed = [(next(one), next(two)) for _ in range(50)]
    assert [first for first, _ in mixed] == list(other)[:50]
    assert [second for _, second in mixed] == list(other)[:50]


# ---------------------------------------------------------------- len()


@pytest.mark.parametrize("factor", [1, 2, 2.5, 3.7])
@pytest.mark.parametrize("batch_size", [None, 1, 7, 100])
@pytest.mark.parametrize("drop_last", [False, True])
def test_length_is_the_number_of_batches_of_each_epoch(factor, batch_size, drop_last):
    if batch_size is None and drop_last:
        pytest.skip("drop_last needs a batch_size")
    loader = pyecho.EchoLoader(
        np.arange(30), factor, batch_size=batch_size, drop_last=drop_last, shuffle_buffer=5, seed=1
    )
    for _ in range(3):
        expected = len(loader)
        assert sum(1 for _ in loader) == expected


def test_length_follows_set_epoch():
    loader = loader_of(factor=1.5)
    lengths = [len(list(loader)) for _ in range(4)]
    for epoch, length in enumerate(lengths):
        loader.set_epoch(epoch)
        assert len(loader) == length


@pytest.mark.parametrize(
    ("loader", "reason"),
    [
        (pyecho.EchoLoader(iter([1])), "no len"),
        (pyecho.EchoLoader([np.arange(2)], batch_size=2, unbatch=True), "unbatch"),
        (pyecho.EchoLoader([1, 2], batch_size=2, shuffle_buffer=2, unique_in_batch=True), "unique"),
    ],
)
def test_where_the_length_is_not_known_len_raises_type_error(loader, reason):
    with pytest.raises(TypeError, match=reason):
        len(loader)
    assert rows_of(map(np.atleast_1d, loader)).size > 0, "and iteration does without"


def test_a_data_loader_of_unknown_length_gives_none():
    data = pytest.importorskip("torch").utils.data

    class Stream(data.IterableDataset):
        def __iter__(self):
            yield from range(3)

    with pytest.raises(TypeError):
        len(pyecho.EchoLoader(data.DataLoader(Stream())))
