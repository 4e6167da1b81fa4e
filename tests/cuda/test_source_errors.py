"""A source that fails: with a device, too, its error comes after every use of what came before."""

import gc
import itertools
import weakref

import pytest
import torch

import pyecho
import pyecho.torch


class Unreadable(Exception):
    pass


def failing_source(items, error):
    for number in range(items):
        yield torch.full((60,), number, dtype=torch.uint8)
    raise error


def mismatched_source(items):
    for number in range(items):
        yield torch.full((60,), number, dtype=torch.uint8)
    yield torch.ones(3)


def emitted_before(error, loader, synchronize=lambda: None):
    """What an epoch emits before the error that ends it, and that error."""
    batches = []
    with pytest.raises(error) as raised:
        for batch in loader:
            synchronize()
            batches.append(batch[:, 0].tolist())
    return batches, raised.value


CONFIGURATIONS = [
    {"factor": 2, "batch_size": 4, "shuffle_buffer": 3},
    {"factor": 4, "batch_size": 8, "shuffle_buffer": 20},
    {"factor": 1, "batch_size": 16, "shuffle_buffer": 64},
    {"factor": 2.5, "batch_size": 3, "shuffle_buffer": 1000},
    {"factor": 3, "batch_size": 4, "shuffle_buffer": 9, "unique_in_batch": True},
    {"factor": 3, "batch_size": 4, "shuffle_buffer": 9, "drop_last": True},
]


@pytest.mark.parametrize("echo_on", ["host", "device"])
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
@pytest.mark.parametrize("items", [1, 40])
def test_every_use_of_what_came_before_is_emitted_then_the_same_exception(
    device, echo_on, configuration, items
):
    error = Unreadable("a.png")
    on_host = pyecho.torch.EchoLoader(failing_source(items, Unreadable()), **configuration)
    expected, _ = emitted_before(Unreadable, on_host)
    loader = pyecho.torch.EchoLoader(
        failing_source(items, error), **configuration, device="cuda:0", echo_on=echo_on
    )
    emitted, raised = emitted_before(Unreadable, loader, lambda: device[-1].synchronize())
    assert emitted == expected
    assert raised is error
    stats = loader.stats()
    assert (stats.fresh, stats.emitted) == (items, sum(map(len, expected)))


@pytest.mark.parametrize("echo_on", ["host", "device"])
def test_an_item_that_differs_is_reported_after_those_before_it(device, echo_on):
    loader = pyecho.torch.EchoLoader(
        mismatched_source(10),
        3,
        batch_size=4,
        shuffle_buffer=6,
        device="cuda:0",
        echo_on=echo_on,
    )
    emitted, _ = emitted_before(pyecho.SpecMismatch, loader, lambda: device[-1].synchronize())
    assert sorted(itertools.chain(*emitted)) == sorted(list(range(10)) * 3)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
@pytest.mark.parametrize("echo_on", ["host", "device"])
def test_errors_that_are_no_exceptions_do_so_as_well(device, echo_on, kind):
    error = kind("early")
    loader = pyecho.torch.EchoLoader(
        failing_source(5, error), 2, batch_size=4, shuffle_buffer=0, device="cuda:0", echo_on=echo_on
    )
    emitted, raised = emitted_before(kind, loader, lambda: device[-1].synchronize())
    assert list(itertools.chain(*emitted)) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert raised is error


@pytest.mark.parametrize("echo_on", ["host", "device"])
def test_once_handled_the_error_is_kept_by_nobody(device, echo_on):
    def source():
        yield from torch.zeros(5, 60)
        raise Unreadable

    loader = pyecho.torch.EchoLoader(source(), 2, batch_size=4, shuffle_buffer=0, device="cuda:0", echo_on=echo_on)
    gc.collect()
    gc.disable()
    try:
        try:
            list(loader)
        except Unreadable as error:
            watched = weakref.ref(error)
        for run in [loader._run]:
            run.join()
        assert watched() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("nth", [1, 4])
def test_an_error_of_the_device_does_not_wait_for_the_end_of_the_pool(device, standin, nth):
    loader = pyecho.torch.EchoLoader(
        failing_source(20, Unreadable()),
        50,
        batch_size=4,
        shuffle_buffer=100,
        device="cuda:0",
        echo_on="device",
    )
    standin.fail_call(nth, 719, name="cuMemcpyHtoDAsync")
    emitted, _ = emitted_before(pyecho.CudaError, loader)
    standin.fail_call(0)
    assert len(emitted) <= nth
