"""After a fork the child gets a clear error instead of a hang; the parent goes on undisturbed."""

import os

import pytest
from scripts import run

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")

CHILD = """
        import signal, warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads, from Python 3.12

        def in_child(function):
            "Run the function in a forked child; what it returns is the child's exit code."
            pid = os.fork()
            if pid == 0:
                signal.alarm(60)  # a hang ends with a signal, and fails below
                code = 99
                try:
                    code = function() or 0
                finally:
                    os._exit(code)
            _, status = os.waitpid(pid, 0)
            assert status == 0, status

        def refused(function):
            def attempt():
                try:
                    function()
                except pyecho.EchoError as error:
                    assert "fork" in str(error), error
                    return 0
                return 1
            return attempt
"""


ITERATION = """
        loader = pyecho.EchoLoader([np.zeros(8)] * 100, 2, {arguments})
        batches = iter(loader)
        batch = next(batches)
"""
BUFFER = """
        buffer = pyecho.EchoBuffer(pyecho.Field((), int), batch_size=1)
        buffer.put(0)
        state = buffer.state_dict()
"""
EXAMPLES, LEFT = ITERATION.format(arguments="batch_size=4"), "sum(1 for _ in batches)"
DROPPED = """
        reservation = buffer.reserve()
        def child():
            global batches, batch, buffer, reservation, loader
            assert not batch.any()
            loader.close()
            del batches, batch, reservation
            buffer.close()
            buffer.stop()
            del buffer, loader
            gc.collect()
        in_child(child)
        reservation.abort()
        del batch
"""
USED = """
        def child():
            assert sum(len(batch) for batch in loader) == 200
            assert sum(1 for _ in pyecho.EchoLoader(range(100), 2)) == 200
        in_child(child)
"""
AUGMENTED = ITERATION.format(arguments="batch_size=4, augment=lambda b, rng: b")
REFUSED = [
    (EXAMPLES, "next(batches)", f"{LEFT} == 49"),
    (ITERATION.format(arguments=""), "next(batches)", f"{LEFT} == 199"),
    (AUGMENTED, "next(batches)", f"{LEFT} == 49"),
    (EXAMPLES, "loader.state_dict()", "loader.state_dict()['position']['delivered'] == 1"),
]
for use in (
    *("buffer.put(1)", "buffer.put_batch(np.arange(3))", "buffer.reserve()"),
    *("next(iter(buffer))", "buffer.state_dict()", "buffer.load_state_dict(state)"),
):
    holds = "not buffer.close() and len([each.copy() for each in buffer]) == 2"
    REFUSED.append((BUFFER, use, holds))


@pytest.mark.parametrize(("setup", "use", "holds"), REFUSED)
def test_childs_use_of_what_the_parent_has_begun_is_refused_and_the_parent_goes_on(
    setup, use, holds
):
    run(f"{CHILD}{setup}        in_child(refused(lambda: {use}))\n        assert {holds}\n")


LOADED = """
        other = pyecho.EchoLoader(list(range(9)), 2, batch_size=4)
        other.skip_first_batches(3)
        def child():
            assert sum(1 for _ in other) == 2
        in_child(child)
        assert sum(1 for _ in other) == 2
"""


@pytest.mark.parametrize("use", [USED, DROPPED, LOADED], ids=["used", "dropped", "loaded"])
def test_child_may_begin_an_iteration_of_its_own_and_drop_what_it_inherits(use):
    run(f"{CHILD}{EXAMPLES}{BUFFER}{use}        assert {LEFT} == 49\n")


def test_child_that_exits_the_ordinary_way_exits():
    run("""
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        batches = iter(pyecho.EchoLoader(itertools.repeat(np.zeros(8)), 2, batch_size=4))
        next(batches)
        pid = os.fork()
        if pid == 0:
            import signal
            signal.alarm(60)
            sys.exit(0)  # runs atexit handlers and finalizers
        assert os.waitpid(pid, 0)[1] == 0
        next(batches)
    """)


def test_data_loader_workers_are_forked_while_pyecho_runs():
    run("""
        import torch, warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        running = iter(pyecho.EchoLoader(itertools.repeat(np.zeros(8)), 2, batch_size=4))
        next(running)
        source = torch.utils.data.DataLoader(range(40), batch_size=4, num_workers=2)
        assert sum(len(batch) for batch in pyecho.EchoLoader(source, 2)) == 80
        next(running)
    """)
