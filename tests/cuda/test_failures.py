"""Any call of the driver may fail: the consumer gets a CudaError, and nothing hangs."""

import itertools
import textwrap
import warnings

import pytest
import scripts
import standin as standin_driver
import torch
from standin import Standin

import pyecho
import pyecho.torch

SHAPES = {
    "batches": {},
    "examples": {"batch_size": 4},
    "on the device": {"batch_size": 4, "echo_on": "device", "shuffle_buffer": 6},
    "converted": {"batch_size": 4, "device_dtype": torch.float16},
    "augmented": {"batch_size": 4, "augment": lambda batch, rng: batch},
}


def run(standin: Standin, shape, device, nth=0, name=None):
    """Fail the nth call of an epoch; return the values, or the error that the consumer got."""
    source = [torch.full((600,), number, dtype=torch.uint8) for number in range(24)]
    loader = pyecho.torch.EchoLoader(source, 2, device="cuda:0", **SHAPES[shape])
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
@pytest.mark.parametrize("shape", SHAPES)
def test_a_single_failure_reaches_the_consumer_or_does_no_harm(standin, device, shape, call):
    expected = run(standin, shape, device)
    assert len(expected) == 48
    for nth in itertools.count(1):
        standin.restore()
        outcome = run(standin, shape, device, nth, name=call)
        if isinstance(outcome, pyecho.CudaError):
            assert (outcome.code, outcome.name) == (719, "CUDA_ERROR_LAUNCH_FAILED")
            assert outcome.call == call
            assert call in str(outcome)
        else:
            assert outcome == expected, nth
            if standin.calls_of(call.encode()) < nth:
                break


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("failures", [1, 3])
def test_a_wait_that_is_refused_loses_nothing(standin, device, shape, failures):
    """As that of a stream that is being captured is."""
    expected = run(standin, shape, device)
    source = [torch.full((600,), number, dtype=torch.uint8) for number in range(24)]
    batches = iter(pyecho.torch.EchoLoader(source, 2, device="cuda:0", **SHAPES[shape]))
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


FAULT = """
    source = [torch.full((600,), number, dtype=torch.uint8) for number in range(24)]
    loader = pyecho.torch.EchoLoader(source, 2, device="cuda:0", **{arguments})
    batches = iter(loader)
    emitted = 0
    driver.fail_call({nth}, 700, sticky=True)
    try:
        for _ in batches:
            emitted += 1
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
@pytest.mark.parametrize("shape", ["batches", "examples", "on the device"])
def test_after_a_fault_of_the_context_the_consumer_hears_of_it(standin_library, shape, nth):
    setup = textwrap.dedent(standin_driver.LOADER.format(library=str(standin_library)))
    script = textwrap.dedent(FAULT.format(arguments=SHAPES[shape], nth=nth))
    assert scripts.run(setup + script) == "700 True\n"
