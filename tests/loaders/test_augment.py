"""augment is called on every use, with a generator of its own, in a thread of its own."""

import threading
import traceback
import warnings

import numpy as np
import pytest
from delays import dawdling

import pyecho


def noisy(batch, rng):
    return batch + rng.integers(0, 1000, batch.shape)


def loader_of(source=None, factor=2, *, augment=noisy, **arguments):
    source = [np.arange(3) for _ in range(20)] if source is None else source
    return pyecho.EchoLoader(source, factor, augment=augment, **arguments)


@pytest.mark.parametrize("batch_size", [None, 4])
@pytest.mark.parametrize("shuffle_buffer", [0, 6])
def test_it_is_called_once_for_every_use_and_its_result_is_what_comes_out(
    batch_size, shuffle_buffer
):
    made = []

    def augment(batch, rng):
        assert isinstance(rng, np.random.Generator)
        made.append(["result", batch.shape])
        return made[-1]

    emitted = list(loader_of(augment=augment, batch_size=batch_size, shuffle_buffer=shuffle_buffer))
    assert len(emitted) == (40 if batch_size is None else 10)
    assert all(one is other for one, other in zip(emitted, made, strict=True))


def test_every_use_gets_other_random_numbers():
    emitted = [batch.tolist() for batch in loader_of(factor=5)]
    assert len({tuple(batch) for batch in emitted}) == 100


@pytest.mark.parametrize("batch_size", [None, 4])
def test_it_is_reproducible_whatever_the_timing(batch_size):
    def run(source, slow):
        loader = loader_of(source, factor=3, batch_size=batch_size, seed=3, shuffle_buffer=5)
        batches = iter(loader)
        return [b.tolist() for b in (dawdling(batches, 1) if slow else batches)]

    source = [np.full(2, number) for number in range(20)]
    assert run(source, slow=False) == run(dawdling(source, 2), slow=True)


def test_seed_and_epoch_change_the_numbers():
    zeros = [np.zeros(2, int)] * 3
    one, other = loader_of(zeros, seed=1), loader_of(zeros, seed=2)
    runs = [[batch.tolist() for batch in loader] for loader in (one, one, other)]
    assert runs[0] != runs[1]
    assert runs[0] != runs[2]
    one.set_epoch(0)
    assert [batch.tolist() for batch in one] == runs[0]


def test_random_numbers_of_a_batch_do_not_depend_on_those_drawn_before():
    def greedy(batch, rng):
        first = rng.integers(0, 2**60)
        rng.random(int(batch[0]) * 100)  # some batches draw more than others
        return first

    one = list(loader_of([np.array([n]) for n in range(9)], augment=greedy))
    other = list(loader_of([np.array([9 - n]) for n in range(9)], augment=greedy))
    assert one == other


def test_it_runs_in_one_thread_of_its_own():
    threads = []

    def augment(batch, rng):
        threads.append(threading.current_thread())
        return batch

    list(loader_of(augment=augment))
    assert len(set(threads)) == 1
    assert threads[0] is not threading.main_thread()
    assert threads[0].name == "pyecho-augment"


def test_it_overlaps_the_consumer():
    """While the consumer holds batch 0, batch 1 is augmented; else this would wait for ever."""
    reached = threading.Event()

    def augment(batch, rng):
        if batch == 1:
            reached.set()
        return batch

    batches = iter(loader_of(range(5), factor=1, augment=augment))
    assert next(batches) == 0
    assert reached.wait(60)


def test_info_stays_with_the_batch_and_is_not_augmented():
    seen = []

    def augment(batch, rng):
        seen.append(batch)
        return batch * 10

    emitted = list(loader_of(range(6), augment=augment, shuffle_buffer=3, with_info=True))
    assert all(not isinstance(batch, tuple) for batch in seen)
    assert [batch for batch, _ in emitted] == [10 * int(i.source_index[0]) for _, i in emitted]


@pytest.mark.parametrize("batch_size", [None, 4])
def test_an_exception_reaches_the_consumer_after_what_came_before(batch_size):
    error = RuntimeError("no such crop")
    calls = 0

    def augment(batch, rng):
        nonlocal calls
        calls += 1
        if calls == 4:
            raise error
        return calls

    batches = iter(loader_of(augment=augment, batch_size=batch_size))
    assert [next(batches) for _ in range(3)] == [1, 2, 3]
    with pytest.raises(RuntimeError) as raised:
        next(batches)
    assert raised.value is error
    assert "in augment" in "".join(traceback.format_exception(error))


@pytest.mark.parametrize("augment", [3, "flip", object()])
def test_what_cannot_be_called_is_refused(augment):
    with pytest.raises(pyecho.ConfigError, match=r"augment must be a function of \(batch, rng\)"):
        loader_of(augment=augment)


def test_a_source_error_comes_through_it():
    def source():
        yield np.zeros(1)
        raise OSError("disk gone")

    batches = iter(loader_of(source(), factor=3))
    assert len([next(batches) for _ in range(3)]) == 3
    with pytest.raises(OSError, match="disk gone"):
        next(batches)


def test_changing_batches_in_place_costs_no_memory_and_no_warning():
    """The queue between augmentation and consumer holds batches, too: they are no hoard."""

    def double(batch, rng):
        batch *= 2
        return batch

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for prefetch in (1, 2, 5):
            loader = loader_of(np.ones((3000, 4)), augment=double, batch_size=4, prefetch=prefetch)
            batches = iter(loader)
            before = loader.stats().host_allocations
            for batch in dawdling(batches, seed=prefetch, most_seconds=0.0005):
                assert batch.min() == batch.max() == 2
            assert loader.stats().host_allocations == before


def test_max_bytes_leaves_room_for_the_batches_that_wait_after_augmentation():
    rows = np.zeros((400, 1024))
    with pytest.raises(pyecho.ConfigError) as refused:
        iter(loader_of(rows, augment=lambda b, rng: b, batch_size=4, max_bytes=1))
    least = int(str(refused.value).split("(")[1].split()[0])
    loader = loader_of(rows, augment=lambda b, rng: b, batch_size=4, max_bytes=least)
    assert sum(len(batch) for batch in dawdling(iter(loader), 3, 0.0005)) == 800


def test_shared_storage_is_read_only_for_it_and_copy_makes_it_writable():
    def in_place(batch, rng):
        batch += 1
        return batch

    with pytest.raises(ValueError, match="read-only"):
        list(loader_of(augment=in_place))
    assert all(b.tolist() == [1, 2, 3] for b in loader_of(augment=in_place, copy=True))


def test_torch_batches_are_augmented_as_tensors():
    torch = pytest.importorskip("torch")
    import pyecho.torch

    def augment(batch, rng):
        assert isinstance(batch, torch.Tensor)
        return batch.add_(int(rng.integers(5)))

    loader = pyecho.torch.EchoLoader(list(torch.zeros(20, 2)), 2, batch_size=4, augment=augment)
    assert len({int(batch[0, 0]) for batch in loader}) > 1
