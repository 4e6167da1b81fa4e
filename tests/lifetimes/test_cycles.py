"""Reference cycles through loaders, iterators, buffers and failures are collected quietly."""

import gc
import itertools
import threading
import weakref

import numpy as np
import pytest

import pyecho


class Marker:
    """Something that can be watched dying."""


def is_collected(make):
    """Run `make`, which returns a weak reference into a cycle, and see whether it dies.

    Whatever a finalizer complains about becomes an error: pytest watches sys.unraisablehook.
    """
    before = set(threading.enumerate())
    reference = make()
    gc.collect()
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
    gc.collect()
    return reference() is None


def failing():
    yield 1
    raise RuntimeError("source")


@pytest.mark.parametrize("arguments", [{}, {"batch_size": 2}, {"augment": lambda b, rng: b}])
def test_iterator_that_refers_to_itself(arguments):
    def make():
        marker = Marker()
        marker.uses = iter(pyecho.EchoLoader(itertools.count(), 2, **arguments))
        next(marker.uses)
        marker.self = marker
        return weakref.ref(marker)

    assert is_collected(make)


@pytest.mark.parametrize("arguments", [{}, {"batch_size": 2}, {"augment": lambda b, rng: b}])
@pytest.mark.parametrize("fetched", [True, False])
def test_failure_whose_traceback_refers_to_everything(arguments, fetched):
    def make():
        marker = Marker()
        uses = iter(pyecho.EchoLoader(failing(), 2, **arguments))
        marker.uses = uses
        if fetched:
            try:
                list(uses)
            except RuntimeError as error:
                marker.error = error  # its traceback refers to this frame, and so to `marker`
        return weakref.ref(marker)

    assert is_collected(make)


def test_buffer_that_holds_its_own_failure():
    def make():
        buffer = pyecho.EchoBuffer(pyecho.Field((), int), batch_size=1)
        error = RuntimeError("mine")
        error.buffer, error.marker = buffer, Marker()
        buffer.fail(error)
        return weakref.ref(error.marker)

    assert is_collected(make)


def test_buffer_that_holds_references_to_itself():
    def make():
        buffer = pyecho.EchoBuffer(pyecho.Field((), object), batch_size=1, shuffle_buffer=4)
        marker = Marker()
        marker.buffer = buffer
        buffer.put(marker)
        return weakref.ref(marker)

    assert is_collected(make)


def test_items_that_refer_to_their_iterator():
    def make():
        marker = Marker()
        marker.uses = iter(pyecho.EchoLoader([marker] * 3, 2, shuffle_buffer=3))
        next(marker.uses)
        return weakref.ref(marker)

    assert is_collected(make)


def test_augment_that_refers_to_its_loader():
    def make():
        marker = Marker()

        def augment(batch, rng):
            return batch if marker else None

        marker.loader = pyecho.EchoLoader(range(10), 2, augment=augment)
        list(marker.loader)
        return weakref.ref(marker)

    assert is_collected(make)


def test_reservation_in_a_cycle_is_aborted():
    buffer = pyecho.EchoBuffer(pyecho.Field((), int), batch_size=1, factor=1)
    marker = Marker()
    marker.reservation, marker.self = buffer.reserve(), marker
    buffer.put(7)
    del marker
    gc.collect()
    buffer.close()
    assert [batch.tolist() for batch in buffer] == [[7]]


def test_collector_may_run_at_any_point():
    """With a collection at almost every allocation, in any thread, all comes out as ever."""
    thresholds = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        for _ in range(5):
            loader = pyecho.EchoLoader(
                [{"x": np.arange(3), "name": "a"} for _ in range(20)],
                2,
                batch_size=4,
                augment=lambda batch, rng: batch,
                with_info=True,
            )
            next(iter(loader))
            assert sum(len(batch["name"]) for batch, _ in loader) == 40
    finally:
        gc.set_threshold(*thresholds)
