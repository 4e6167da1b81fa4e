"""augment and collate_fn are called on every use, in threads of their own, and keep the order."""

import contextvars
import random
import threading
import time
import traceback
import warnings

import numpy as np
import pytest
import torch
from drivers import Iterated, flat, levels, repeated

import pyecho
import pyecho.torch

workers = pytest.mark.parametrize("augment_workers", [0, 1, 2, 4])
DELAYS = random.Random(1)
VARIABLE = contextvars.ContextVar("VARIABLE", default="default")


def unchanged(batch, rng):
    return batch


def loader_of(source, factor=2, *, augment=unchanged, **arguments):
    return pyecho.EchoLoader(source, factor, augment=augment, **arguments)


def late():
    """Upset the order in which threads are done."""
    time.sleep(DELAYS.random() * 0.002)


# ---------------------------------------------------------------- every use


@workers
@levels
@pytest.mark.parametrize("epochs", [None, 3])
def test_augment_has_random_numbers_of_its_own_for_every_use_whatever_the_threads(
    augment_workers, batch_size, epochs
):
    def augment(batch, rng):
        late()
        drawn = rng.bit_generator.random_raw(2).tolist()
        late()
        return drawn, torch.rand(1).item()

    arguments = {"batch_size": batch_size, "seed": 7, "augment_workers": augment_workers}
    loader = loader_of(Iterated(range(15)), 3, augment=augment, epochs=epochs, **arguments)
    loader.set_epoch(1)
    seen = set()
    for epoch in (1, 2, 3):
        emitted = list(loader)
        for number, (drawn, _) in enumerate(emitted):
            philox = np.random.Philox(key=7, counter=[0, 0, number, epoch])
            assert drawn == philox.random_raw(2).tolist(), "fixed for ever"
        seen.update(torch_draw for _, torch_draw in emitted)
    assert len(seen) == 3 * len(emitted)
    if augment_workers:
        again = loader_of(range(15), 3, augment=augment, batch_size=batch_size, seed=7)
        again.set_epoch(3)
        assert list(again) == emitted


@pytest.mark.parametrize("augment_workers", [1, 3])
def test_augment_workers_run_side_by_side_in_the_callers_context(augment_workers):
    together = threading.Barrier(augment_workers, timeout=60)
    seen = set()

    def augment(batch, rng):
        together.wait()
        seen.add((threading.current_thread().name, VARIABLE.get()))
        return batch

    token = VARIABLE.set("caller")
    try:
        assert flat(loader_of(range(30), 1, augment=augment, augment_workers=augment_workers))
    finally:
        VARIABLE.reset(token)
    assert seen == {("pyecho-augment", "caller")}


def test_augment_overlaps_the_consumer():
    """While the consumer holds batch 0, batch 1 is augmented; else this would wait for ever."""
    reached = threading.Event()

    def augment(batch, rng):
        if batch == 1:
            reached.set()
        return batch

    batches = iter(loader_of(range(5), 1, augment=augment))
    assert next(batches) == 0
    assert reached.wait(60)


# ---------------------------------------------------------------- errors


@workers
@levels
@pytest.mark.parametrize("epochs", [None, 2])
def test_error_arrives_in_its_place_and_the_next_epoch_is_whole(
    augment_workers, batch_size, epochs
):
    error, fails = RuntimeError("no such crop"), True

    def call(batch, *rng):
        if fails:
            late()
            if 20 in np.atleast_1d(batch):
                raise error
        return batch

    loader = pyecho.EchoLoader(
        Iterated(range(600)),
        2,
        batch_size=batch_size,
        shuffle_buffer=0,
        augment_workers=augment_workers,
        epochs=epochs,
        **{"augment" if batch_size is None or epochs else "collate_fn": call},
    )
    emitted = []
    with pytest.raises(RuntimeError) as raised:
        for batch in loader:
            emitted += flat([batch])
    assert raised.value is error
    assert "in call" in "".join(traceback.format_exception(error))
    assert emitted == repeated(range(20))
    fails = False
    assert [flat(loader) for _ in range(2)] == [repeated(range(600))] * 2


# ---------------------------------------------------------------- memory


def test_changing_batches_in_place_costs_no_memory_and_no_warning():
    """The queue between augmentation and consumer holds batches, too: they are no hoard."""

    def double(batch, rng):
        batch *= 2
        return batch

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for prefetch, threads in ((1, 0), (2, 1), (5, 4)):
            loader = loader_of(
                np.ones((3000, 4)),
                augment=double,
                augment_workers=threads,
                batch_size=4,
                prefetch=prefetch,
            )
            batches = iter(loader)
            assert next(batches).max() == 2
            before = loader.stats().host_allocations
            for number, batch in enumerate(batches):
                if number % 3 == 0:
                    late()
                assert batch.min() == batch.max() == 2
            assert loader.stats().host_allocations == before


# ---------------------------------------------------------------- collate_fn


def test_augment_must_not_return_none():
    with pytest.raises(pyecho.ConfigError, match="augment returned None; it must return the batch"):
        list(loader_of([1], augment=lambda batch, rng: None))


# ---------------------------------------------------------------- functions that keep something


class Compose:
    """Keeps the batch between its steps, as transforms of other libraries do."""

    def __init__(self):
        self.kept = None
        self.seen = []
        self.random = [np.random.RandomState(3), np.random.default_rng(3), random.Random(3)]
        self.torch = torch.Generator().manual_seed(3)

    def __call__(self, batch, *rng):
        self.kept = batch
        late()
        self.seen += np.atleast_1d(batch).tolist()
        return self.kept

    def numbers(self, batch, *rng):
        randomstate, generator, python = self.random
        late()
        drawn = torch.rand((), generator=self.torch, dtype=torch.float64).item()
        return [randomstate.random(), generator.random(), python.random(), drawn]


@pytest.mark.parametrize("augment_workers", [2, 4])
@pytest.mark.parametrize("as_method", [False, True])
@pytest.mark.parametrize("option", ["augment", "collate_fn"])
def test_object_that_is_not_thread_safe_gives_each_batch_its_own(
    augment_workers, as_method, option
):
    compose = Compose()
    function = compose.__call__ if as_method else compose
    loader = pyecho.EchoLoader(
        Iterated(range(400)),
        1,
        batch_size=1,
        shuffle_buffer=0,
        augment_workers=augment_workers,
        **{option: function},
    )
    assert flat(loader) == flat(loader) == list(range(400))
    assert compose.seen == [], "each worker has a copy"


@pytest.mark.parametrize("augment_workers", [0, 1])
def test_object_is_called_itself_by_one_worker(augment_workers):
    compose = Compose()
    emitted = flat(loader_of(range(20), 2, augment=compose, augment_workers=augment_workers))
    assert compose.seen == emitted == repeated(range(20))


def test_collate_fn_and_augment_of_one_object_are_of_one_copy():
    class Both:
        def collate(self, examples):
            self.kept = examples
            return examples

        def augment(self, batch, rng):
            late()
            assert batch is self.kept
            return batch

    both = Both()
    loader = loader_of(
        range(100),
        1,
        batch_size=2,
        collate_fn=both.collate,
        augment=both.augment,
        augment_workers=4,
    )
    assert sorted(flat(loader)) == list(range(100))


def test_augment_that_cannot_be_copied_is_shared_by_all_workers():
    class Locked:
        def __init__(self):
            self.lock = threading.Lock()
            self.seen = []

        def __call__(self, batch, rng):
            with self.lock:
                self.seen.append(batch)
            return batch

    locked, seen = Locked(), []

    def function(batch, rng):
        seen.append(batch)
        return batch

    for augment, found in ((locked, locked.seen), (function, seen)):
        flat(loader_of(range(50), 1, augment=augment, augment_workers=3))
        assert sorted(found) == list(range(50))


def test_copies_of_generators_draw_numbers_of_their_own():
    """Or each worker would draw what the others draw."""
    emitted = list(loader_of(range(60), 1, augment=Compose().numbers, augment_workers=4))
    assert all(len(set(column)) == 60 for column in zip(*emitted, strict=True))


def test_random_functions_of_torch_in_collate_fn_draw_the_same_numbers_again():
    def numbers(seed):
        torch.manual_seed(seed)
        loader = pyecho.EchoLoader(range(9), 2, batch_size=2, collate_fn=lambda _: torch.rand(()))
        return torch.stack(list(loader)).tolist()

    assert numbers(1) == numbers(2)
    assert len(set(numbers(1))) == 9


def test_state_after_an_exception_reached_the_consumer_is_the_next_epoch():
    def failing(batch, rng):
        if batch == 3:
            raise ValueError("mine")
        return batch

    loader = loader_of(range(9), 1, augment=failing, shuffle_buffer=0)
    batches = iter(loader)
    with pytest.raises(ValueError, match="mine"):
        list(batches)
    assert loader.state_dict()["epoch"] == 1
