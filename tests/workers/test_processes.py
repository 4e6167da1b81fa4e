"""Worker processes and others: forks at any time, loaders in workers, Ctrl-C, who is to blame."""

import os
import signal

import numpy as np
import pytest
from scripts import run
from worked import Rows, emitted

import pyecho
from pyecho import ConfigError, SpecMismatch, WorkerError
from pyecho.workers import start


class Nested(Rows):
    """Reads with a loader of its own in every item."""

    def __init__(self, **options):
        super().__init__(6)
        self.options = options

    def __getitem__(self, index):
        with pyecho.EchoLoader(Rows(4), 1, batch_size=2, **self.options) as loader:
            return np.full(3, index + sum(len(batch["x"]) for batch in loader))


def test_loader_in_a_worker_has_no_worker_processes_of_its_own():
    options = {"batch_size": 2, "num_workers": 2}
    expected = emitted(Nested(), batch_size=2)
    assert emitted(Nested(num_workers=2, workers="thread"), **options) == expected
    with pytest.raises(ConfigError, match=r"pyecho-worker-. is a daemonic process.*num_workers=0"):
        emitted(Nested(num_workers=1), **options)


def test_process_that_is_forked_while_a_worker_starts_can_start_workers():
    with start._starting:  # as another thread would
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            try:
                with pyecho.EchoLoader(Rows(), 1, batch_size=4, num_workers=1) as loader:
                    os._exit(sum(1 for _ in loader))
            finally:
                os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 15


def test_ctrl_c_right_after_the_fork_of_a_worker_leaves_no_process():
    run(
        """
        import ctypes, functools, signal
        libc = ctypes.CDLL(None)
        fork, left = os.fork, []

        def struck():
            child = fork()
            if child:
                left.append(child)
                while signal.SIGINT not in signal.sigpending():  # it is blocked, or raised here
                    os.sched_yield()
            return child

        os.setpgid(0, 0)
        os.fork = struck
        os.register_at_fork(after_in_child=functools.partial(libc.kill, 0, int(signal.SIGINT)))
        import pyecho.workers.start  # its handlers are called after that one
        class Rows:
            def __len__(self): return 100
            def __getitem__(self, index): return np.full(3, index)
        options = dict(num_workers=1, multiprocessing_context="fork")
        try:
            next(iter(pyecho.EchoLoader(Rows(), 1, batch_size=4, **options)))
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("no interrupt")
        [worker] = left
        gc.collect()
        deadline = time.monotonic() + 20
        with contextlib.suppress(ChildProcessError):  # it was waited for
            while os.waitpid(worker, os.WNOHANG) == (0, 0):
                assert time.monotonic() < deadline, "it still runs"
                time.sleep(0.01)
        """
    )


def test_workers_that_die_in_worker_init_fn_are_not_blamed_on_an_item():
    message = "two workers died before the first item.*exit code 3.*init_fn"
    with pytest.raises(WorkerError, match=message):
        emitted(Rows(), num_workers=2, worker_init_fn=lambda number: os._exit(3))


@pytest.mark.parametrize("workers", ["process", "thread"])
def test_item_unlike_the_first_is_named_by_its_index(workers):
    class Other(Rows):
        def __getitem__(self, index):
            return np.zeros(3 if index != 17 else 2)

    with pytest.raises(SpecMismatch, match=r"^source\[17\]: .*shape \(3,\)"):
        emitted(Other(), num_workers=2, workers=workers, batch_size=4, shuffle=True)
