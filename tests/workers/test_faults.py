"""Workers that die, raise or stall: every item keeps its uses, and nothing is left behind."""

import gc
import multiprocessing
import os
import threading
import time
import weakref

import kills
import parents
import pytest
from scripts import run
from waiting import wait_until
from worked import Deadly, Named, Raising, Rows, Slow, emitted, plain, workers_of

import pyecho
from pyecho import Closed, SpecMismatch, WorkerError
from pyecho.workers.start import ProcessWorker, ThreadWorker

FORMS = {"examples": {"batch_size": 8}, "batch echoing": {"shuffle_buffer": 5}}
forms = pytest.mark.parametrize("options", FORMS.values(), ids=FORMS)
kinds = pytest.mark.parametrize("workers", ["process", "thread"])


@forms
def test_worker_that_dies_costs_nothing(options, tmp_path):
    deadly = Deadly(tmp_path / "died")
    assert emitted(deadly, num_workers=2, **options) == emitted(Rows(), **options)


def counted(batches):
    """Number of items; a list would keep them, of which loaders warn."""
    return sum(1 for _ in batches)


def until_error(loader):
    """The batches before an exception, and the exception."""
    batches = iter(loader)
    found = []
    with loader:  # the exception keeps it
        try:
            while True:
                found.append(plain(next(batches)))
        except BaseException as error:
            return found, error


@forms
def test_item_that_kills_its_workers_is_named_after_all_items_before_it(options):
    expected, _ = until_error(pyecho.EchoLoader(Raising(KeyError()), 2, **options))
    with pyecho.EchoLoader(Deadly(None), 2, num_workers=2, **options) as loader:
        found, error = until_error(loader)
        assert isinstance(error, WorkerError)
        assert "item 20 of the source cannot be made: two workers died of it" in str(error)
        assert "exit code -9" in str(error)
        assert found == expected


@forms
def test_item_whose_worker_died_is_made_once_more_and_no_more(options, tmp_path):
    tries = tmp_path / "tries"

    class Noted(Deadly):
        def __getitem__(self, index):
            if index == self.at:
                with tries.open("a") as file:
                    file.write("x")
            return super().__getitem__(index)

    with pyecho.EchoLoader(Noted(None, at=0), 2, num_workers=2, **options) as loader:
        with pytest.raises(WorkerError, match="item 0 of the source cannot be made"):
            next(iter(loader))
        assert tries.read_text() == "xx"


class Odd(Exception):
    """Cannot be unpickled."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


@kinds
@forms
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (KeyError("name"), KeyError),
        (StopIteration(), RuntimeError),
        (SystemExit(3), SystemExit),
        (Odd(1, 2), (Odd, RuntimeError)),
    ],
    ids=["KeyError", "StopIteration", "SystemExit", "not picklable"],
)
def test_exception_comes_after_all_items_before_it_with_its_traceback(
    options, workers, error, kind
):
    expected, _ = until_error(pyecho.EchoLoader(Raising(error), 2, **options))
    with pyecho.EchoLoader(Raising(error), 2, num_workers=3, workers=workers, **options) as loader:
        found, raised = until_error(loader)
    assert isinstance(raised, kind)
    assert found == expected
    if workers == "process":
        assert "in __getitem__" in str(raised.__cause__)


def test_item_unlike_the_first_names_its_leaf():
    class Other(Named):
        def __getitem__(self, index):
            item = super().__getitem__(index)
            return item | {"x": item["x"][: 3 - index // 30]}

    with pytest.raises(
        SpecMismatch, match=r"item\['x'\]: expected float32 array of shape \(3, 5\)"
    ):
        emitted(Other(), num_workers=2, batch_size=8)


@forms
def test_item_that_cannot_be_sent_is_an_error_after_all_items_before_it(options):
    class Local(Rows):
        def __getitem__(self, index):
            return {
                "index": index,
                "object": (lambda: index) if index == 20 else threading.main_thread,
            }

    expected, _ = until_error(pyecho.EchoLoader(Raising(KeyError()), 2, **options))
    with pyecho.EchoLoader(Local(), 2, num_workers=2, **options) as loader:
        found, error = until_error(loader)
    assert "pickle" in str(error)
    assert len(found) == len(expected)


@kinds
def test_exception_of_worker_init_fn_is_that_of_the_source(workers):
    def fail(number):
        raise LookupError(f"worker {number}")

    with pytest.raises(LookupError, match="worker"):
        emitted(Rows(), num_workers=1, workers=workers, worker_init_fn=fail, batch_size=4)


def descriptors_open():
    with os.scandir("/proc/self/fd") as entries:
        return {entry.name for entry in entries}


def test_workers_serve_all_epochs_and_end_with_the_loader():
    gc.collect()
    children, descriptors = {*multiprocessing.active_children()}, descriptors_open()
    with pyecho.EchoLoader(Rows(), 2, batch_size=8, num_workers=2) as loader:
        next(iter(loader))
        processes = workers_of(loader)
        assert counted(loader) == 15
        batches = iter(loader)
        next(batches)
        assert workers_of(loader) == processes
    with pytest.raises(Closed):
        next(batches)
    del loader, batches
    gc.collect()
    # Workers of other tests may have ended meanwhile; the thread that reaps them closes theirs.
    assert wait_until(lambda: descriptors >= descriptors_open())
    assert children >= {*multiprocessing.active_children()}


@kinds
def test_workers_in_a_cycle_end_whatever_the_collector_takes_first(workers):
    def found():
        kinds = ProcessWorker, ThreadWorker
        return {each for each in gc.get_objects() if type(each) in kinds}

    before = found()
    loader = pyecho.EchoLoader(Rows(), 2, batch_size=8, num_workers=1, workers=workers)
    next(iter(loader))
    gc.collect()
    [worker] = found() - before
    del before
    early, late, gone = [*vars(worker).values()], [worker], weakref.ref(worker)
    late.append(late)
    del worker, loader
    gc.collect()  # puts what only `late` refers to behind the rest
    early.clear()
    del late
    gc.collect()  # an error in it is one of this test, by pytest
    assert wait_until(lambda: gone() is None)  # a thread may be about to let it go


def test_loader_that_is_forgotten_ends_its_workers():
    loader = pyecho.EchoLoader(Slow(), 2, batch_size=8, num_workers=2)
    next(iter(loader))
    assert len(workers_of(loader)) == 2
    del loader
    gc.collect()
    assert wait_until(lambda: not multiprocessing.active_children())  # a thread reaps them


@pytest.mark.parametrize("whole", [False, True], ids=["half-way", "at its end"])
def test_loader_that_is_dropped_leaves_no_zombie_and_no_descriptor(whole):
    run(f"""
        import gc, os, time
        from pathlib import Path
        from worked import Rows

        def is_zombie(process):
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            return fields[:2] == ["Z", str(os.getpid())]

        def zombies():
            found = 0
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    found += is_zombie(process)
                except OSError:  # it is gone
                    pass
            return found

        gc.disable()
        before = len(os.listdir("/proc/self/fd"))
        loader = pyecho.EchoLoader(Rows(), 2, batch_size=8, num_workers=2)
        batches = iter(loader)
        next(batches)
        for _ in batches if {whole} else ():
            pass
        del batches, loader
        end = time.monotonic() + 20
        while zombies() or len(os.listdir("/proc/self/fd")) > before:
            assert time.monotonic() < end, (zombies(), os.listdir("/proc/self/fd"))
            time.sleep(0.01)
    """)


def test_stalled_worker_holds_up_only_its_own_items():
    made = []

    class Stalled(Rows):
        def __getitem__(self, index):
            time.sleep(0.002)  # shorter ones are made several at a time
            if index == 8:
                going_on.wait()
            made.append(index)
            return super().__getitem__(index)

    going_on = threading.Event()
    options = {"batch_size": 1, "shuffle_buffer": 0, "num_workers": 2, "workers": "thread"}
    with pyecho.EchoLoader(Stalled(), 1, **options) as loader:
        batches = iter(loader)
        next(batches)
        while len(made) < 59:
            time.sleep(0.001)
        going_on.set()
        assert counted(batches) == 59


def test_forked_child_has_workers_of_its_own():
    loader = pyecho.EchoLoader(Rows(), 2, batch_size=8, num_workers=2)
    batches = iter(loader)
    next(batches)
    child = os.fork()
    if child == 0:
        try:
            os._exit(counted(loader))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 15
    assert counted(batches) == 14
    loader.close()


sizes = pytest.mark.parametrize("sized", [False, True], ids=["one size", "any size"])


@pytest.mark.slow
@sizes
def test_random_kills_cost_no_item_and_no_use(sized):
    assert kills.killed(12, sized=sized) == 12


@pytest.mark.stress
@sizes
def test_thousand_random_kills_cost_no_item_and_no_use(sized):
    assert kills.killed(1000, sized=sized) == 1000


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_loader_that_is_killed_or_exits_leaves_nothing(method, tmp_path):
    parents.killed(tmp_path / "script.py", 2, multiprocessing_context=method)
    parents.exited(tmp_path / "script.py", 2, multiprocessing_context=method)


@pytest.mark.stress
def test_loaders_in_great_number_leave_nothing(tmp_path):
    parents.killed(tmp_path / "script.py", 100)
    parents.exited(tmp_path / "script.py", 200)


@pytest.mark.slow
def test_ctrl_c_ends_the_program_and_not_the_workers_before_it():
    run(
        """
        import signal, os
        class Rows:
            def __len__(self): return 1000
            def __getitem__(self, index):
                time.sleep(0.001)
                return np.full(3, index)
        loader = pyecho.EchoLoader(Rows(), 1, batch_size=4, shuffle_buffer=0, num_workers=2)
        batches, found, struck = iter(loader), [], 0
        while len(found) < 250:
            try:
                if len(found) % 25 == 7 and struck < len(found):
                    struck = len(found)
                    os.killpg(0, signal.SIGINT)
                found.append(next(batches)[:, 0].tolist())
            except KeyboardInterrupt:
                pass
        assert sum(found, []) == list(range(1000))
        loader.close()
        """.replace("import signal, os", "import signal, os; os.setpgid(0, 0)")
    )


def test_what_a_worker_begins_with_is_imported_before():
    """One that is forked while another thread imports would wait for the lock of the import."""
    run("""
        import sys, pyecho.workers.process
        assert {"numpy.random", "fcntl"} <= set(sys.modules)
    """)
