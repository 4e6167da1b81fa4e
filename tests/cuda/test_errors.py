"""Errors reach the consumer at their place: the source's after all before it, the driver's at once.

Any call of the driver may fail; nothing hangs, nothing is lost that need not be.
"""

import gc
import itertools
import textwrap
import warnings
import weakref

import pytest
import scripts
import standin as standin_driver
import torch

import pyecho
import pyecho.torch


class Unreadable(Exception):
    pass


def row(number):
    return torch.full((600,), number, dtype=torch.uint8)


def failing_source(items, error):
    """Yield rows, then raise; or yield what differs, if there is nothing to raise."""
    yield from map(row, range(items))
    if error is None:
        yield torch.ones(3)
    else:
        raise error


def emitted_before(error, loader, synchronize=lambda: None):
    """Return what an epoch emits before the error that ends it, and that error."""
    batches = []
    with pytest.raises(error) as raised:
        for batch in loader:
            synchronize()
            batches.append(batch[:, 0].tolist())
    return batches, raised.value


# ---------------------------------------------------------------- of the source


@pytest.mark.parametrize("echo_on", ["host", "device"])
@pytest.mark.parametrize(
    "arguments",
    [
        {"factor": 2, "batch_size": 4, "shuffle_buffer": 3},
        {"factor": 1, "batch_size": 16, "shuffle_buffer": 64},
        {"factor": 2.5, "batch_size": 3, "shuffle_buffer": 1000},
        {"factor": 3, "batch_size": 4, "shuffle_buffer": 9, "unique_in_batch": True},
        {"factor": 3, "batch_size": 4, "shuffle_buffer": 9, "drop_last": True},
        {"factor": 3, "batch_size": 4, "shuffle_buffer": 9, "epochs": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("items", "kind"), [(40, Unreadable), (1, KeyboardInterrupt), (5, GeneratorExit)]
)
def test_every_use_of_what_came_before_is_emitted_then_the_same_exception(
    device, echo_on, arguments, items, kind
):
    error = kind("a.png")
    on_host = pyecho.torch.EchoLoader(failing_source(items, kind()), **arguments)
    expected, _ = emitted_before(kind, on_host)
    loader = pyecho.torch.EchoLoader(
        failing_source(items, error), **arguments, device="cuda:0", echo_on=echo_on
    )
    emitted, raised = emitted_before(kind, loader, lambda: device[-1].synchronize())
    assert emitted == expected
    assert raised is error
    stats = loader.stats()
    rows = sum(map(len, expected))
    assert (stats.fresh, stats.emitted, stats.batches) == (items, rows, len(expected))


@pytest.mark.parametrize("echo_on", ["host", "device"])
def test_an_item_that_differs_is_reported_after_those_before_it(device, echo_on):
    source = failing_source(10, None)
    loader = pyecho.torch.EchoLoader(source, 3, batch_size=4, device="cuda:0", echo_on=echo_on)
    emitted, _ = emitted_before(pyecho.SpecMismatch, loader, lambda: device[-1].synchronize())
    assert sorted(itertools.chain(*emitted)) == sorted(list(range(10)) * 3)


@pytest.mark.parametrize("echo_on", ["host", "device"])
def test_once_handled_the_error_is_kept_by_nobody(device, echo_on):
    # An iterator's frame would keep the exception that it raised, and be kept by it.
    class Source:
        def __init__(self):
            self.rows = list(map(row, range(5)))

        def __iter__(self):
            return self

        def __next__(self):
            if not self.rows:
                raise Unreadable
            return self.rows.pop()

    loader = pyecho.torch.EchoLoader(Source(), 2, batch_size=4, device="cuda:0", echo_on=echo_on)
    gc.collect()
    gc.disable()
    try:
        try:
            list(loader)
        except Unreadable as error:
            watched = weakref.ref(error)
        loader.close()
        assert watched() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("way", ["batches", "examples", "augmented"])
def test_an_epoch_after_one_that_failed_is_whole(read, way):
    class Source(list):
        broken = True

        def __iter__(self):
            yield from self[:20]
            if self.broken:
                raise Unreadable
            yield from self[20:]

    arguments = standin_driver.WAYS[way]
    source = Source(map(row, range(30)))
    loader = pyecho.torch.EchoLoader(source, 2, device="cuda:0", **arguments)
    with pytest.raises(Unreadable):
        list(loader)
    source.broken = False
    assert sum(batch.numel() for batch in read(loader)) == 60 * 600


# ---------------------------------------------------------------- of the driver


def run(standin, way, device, nth=0, name=None):
    """Fail the nth call of an epoch; return the values, or the error that the consumer got."""
    source = [row(number) for number in range(12)]
    loader = pyecho.torch.EchoLoader(source, 2, device="cuda:0", **standin_driver.WAYS[way])
    standin.fail_call(nth, 719, name=name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # memory stays pageable
            batches = list(loader)
    except pyecho.CudaError as error:
        return error
    finally:
        standin.fail_call(0)
    device[-1].synchronize()
    return torch.cat([batch.reshape(-1, 600)[:, 0].long() for batch in batches]).tolist()


# What only teardown calls is left out: a registration that cannot be undone stays.
CALLS = [
    "cuMemHostRegister",
    "cuPointerGetAttribute",
    "cuEventCreate",
    "cuMemcpyHtoDAsync",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuStreamWaitEvent",
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("way", standin_driver.WAYS)
def test_a_single_failure_reaches_the_consumer_or_does_no_harm(standin, device, way, call):
    expected = run(standin, way, device)
    assert len(expected) == 24
    for nth in itertools.count(1):
        standin.restore()
        outcome = run(standin, way, device, nth, name=call)
        if isinstance(outcome, pyecho.CudaError):
            assert (outcome.code, outcome.name) == (719, "CUDA_ERROR_LAUNCH_FAILED")
            assert outcome.call == call
            assert call in str(outcome)
        else:
            assert outcome == expected, nth
            if standin.calls_of(call.encode()) < nth:
                break


@pytest.mark.parametrize("way", standin_driver.WAYS)
@pytest.mark.parametrize("failures", [1, 3])
def test_a_wait_that_is_refused_loses_nothing(standin, device, way, failures):
    """As that of a stream that is being captured is."""
    expected = run(standin, way, device)
    source = [row(number) for number in range(12)]
    loader = pyecho.torch.EchoLoader(source, 2, device="cuda:0", **standin_driver.WAYS[way])
    batches = iter(loader)
    standin.set_max_delay_us(2000)  # a copy that is done needs no wait
    emitted, refused, due = [], [], failures
    while True:
        standin.fail_call(min(due, 1), 900, name="cuStreamWaitEvent")
        try:
            emitted.append(next(batches))
            due = failures
        except StopIteration:
            break
        except pyecho.CudaError as error:
            refused.append(error.call)
            due -= 1
    assert set(refused) == {"cuStreamWaitEvent"}
    device[-1].synchronize()
    values = [int(value) for batch in emitted for value in batch.reshape(-1, 600)[:, 0]]
    assert values == expected


@pytest.mark.parametrize("nth", [1, 4])
def test_an_error_of_the_device_does_not_wait_for_the_end_of_the_pool(device, standin, nth):
    loader = pyecho.torch.EchoLoader(
        failing_source(20, Unreadable()), 50, batch_size=4, device="cuda:0", echo_on="device"
    )
    standin.fail_call(nth, 719, name="cuMemcpyHtoDAsync")
    emitted, _ = emitted_before(pyecho.CudaError, loader)
    standin.fail_call(0)
    assert len(emitted) <= nth


FAULT = """
    source = [torch.full((600,), number, dtype=torch.uint8) for number in range(24)]
    loader = pyecho.torch.EchoLoader(source, 2, device="cuda:0", **{arguments})
    batches = iter(loader)
    next(batches)
    driver.fail_call({nth}, 700, sticky=True)
    try:
        for _ in batches:
            pass
    except pyecho.CudaError as error:
        print(error.code, error.call.startswith("cu"), flush=True)
    batches = loader = None
    gc.collect()
    for thread in threading.enumerate():
        if thread.name.startswith("pyecho"):
            thread.join(60)
            assert not thread.is_alive()
"""


@pytest.mark.parametrize("nth", [2, 40])
@pytest.mark.parametrize("way", ["batches", "examples", "on the device"])
def test_after_a_fault_of_the_context_the_consumer_hears_of_it(standin_library, way, nth):
    setup = textwrap.dedent(standin_driver.LOADER.format(library=str(standin_library)))
    script = textwrap.dedent(FAULT.format(arguments=standin_driver.WAYS[way], nth=nth))
    assert scripts.run(setup + script) == "700 True\n"
