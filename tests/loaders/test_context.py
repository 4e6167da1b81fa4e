"""The caller's context goes with the reading of the source, whatever thread reads."""

import contextvars
import threading

import pytest
import torch
from scripts import run

from pyecho.context import CallerContext

VARIABLE = contextvars.ContextVar("VARIABLE", default="default")


def in_thread(function, *args):
    """What `function` returns in a thread of its own."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function(*args)))
    thread.start()
    thread.join()
    return results[0]


def state():
    """What a source can see of its thread's context."""
    return {
        "variable": VARIABLE.get(),
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "cpu": torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu"),
        "cache": not torch.is_autocast_enabled("cpu") or torch.is_autocast_cache_enabled(),
        "device": torch.get_default_device().type,
    }


CONTEXTS = {
    "none": [],
    "no_grad": [torch.no_grad],
    "inference": [torch.inference_mode],
    "grad in inference": [torch.inference_mode, lambda: torch.inference_mode(False)],
    "autocast": [lambda: torch.autocast("cpu", torch.float16)],
    "autocast without cache": [lambda: torch.autocast("cpu", cache_enabled=False)],
    "default device": [lambda: torch.device("meta")],
    "all": [torch.no_grad, lambda: torch.device("meta"), lambda: torch.autocast("cpu")],
}


def within(contexts, function):
    if not contexts:
        return function()
    with contexts[0]():
        return within(contexts[1:], function)


@pytest.mark.parametrize("other", CONTEXTS.values(), ids=CONTEXTS)
@pytest.mark.parametrize("caller", CONTEXTS.values(), ids=CONTEXTS)
def test_a_function_runs_in_the_callers_context_and_the_threads_own_comes_back(caller, other):
    context, expected = within(caller, lambda: (CallerContext(), state()))

    def work():
        before = state()
        return context.run(state), before, state()

    seen, before, after = in_thread(within, other, work)
    assert seen == expected
    assert after == before
    assert in_thread(context.run, state) == expected, "and again, from another thread"


def test_context_variables_are_those_of_when_it_was_made():
    token = VARIABLE.set("caller")
    context = CallerContext()
    VARIABLE.reset(token)
    assert VARIABLE.get() == "default"
    assert in_thread(context.run, VARIABLE.get) == "caller"
    in_thread(context.run, VARIABLE.set, "function")
    assert in_thread(context.run, VARIABLE.get) == "function", "a source sees what it set before"


def test_what_the_function_does_to_grad_mode_ends_with_it():
    context = CallerContext()
    context.run(torch.set_grad_enabled, False)
    assert torch.is_grad_enabled()


def test_results_arguments_and_errors_pass_through():
    context = CallerContext()
    assert context.run(divmod, 7, 2) == (3, 1)
    with torch.no_grad(), pytest.raises(ZeroDivisionError):
        context.run(divmod, 7, 0)
    assert torch.is_grad_enabled()


def test_torch_is_not_imported_for_it():
    assert (
        run(
            """
            from pyecho.augment import Augmenter
            from pyecho.context import CallerContext
            from pyecho.source import Source

            source = Source((np.arange(3), np.arange(3)), batch_size=2, unbatch=False)
            [batch] = CallerContext().run(list, source.read())
            print(source.items(), Augmenter(lambda b, rng: len(b), 0).apply(batch, 0, 0))
            print("torch" in sys.modules)
            """
        )
        == "3 2\nFalse\n"
    )
