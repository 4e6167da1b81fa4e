"""pyecho.trace(): what is recorded, and the file."""

import os
import sys
import threading
import time
import types
from pathlib import Path

import pytest
from drivers import drivers, flat, levels, loader_of
from interrupt_points import Interrupts
from trace_format import Trace
from waiting import wait_until

import pyecho
from pyecho.run import trace as tracing

ITEMS = 40


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.json"


@drivers
@levels
def test_trace_accounts_for_the_time_of_every_thread(driver, batch_size, path):
    loader = loader_of(driver, range(ITEMS), 3, batch_size=batch_size, shuffle_buffer=8)
    plain = loader_of(driver, range(ITEMS), 3, batch_size=batch_size, shuffle_buffer=8)
    with pyecho.trace(path):
        for _ in range(2):
            assert flat(loader) == flat(plain)
    trace, stats = Trace(path), loader.stats()
    assert trace.dropped == 0
    assert len(trace.of("step", "consumer")) == 2 * stats.batches  # those of `plain` as well
    assert trace.seconds("wait") >= stats.consumer_wait_seconds
    assert trace.seconds("step") >= stats.downstream_seconds
    reader = "consumer" if driver in ("in memory", "consumer") else "pyecho-feeder"
    assert len(trace.of("source", reader)) >= 2 * 2 * ITEMS
    assert sum(span["args"]["items"] for span in trace.of("put", reader)) == 2 * 2 * ITEMS
    assert {counter["name"] for counter in trace.counters} == {"fill", "fill 2"}
    assert max(counter["args"]["items"] for counter in trace.counters) == 8
    if batch_size is not None:
        assert sum(span["args"]["items"] for span in trace.of("gather")) == 2 * stats.emitted
    assert bool(trace.of("augment")) == (driver == "augmented")
    assert trace.lanes() >= {(reader, "source"), (reader, "put"), ("consumer", "wait")}


@drivers
@levels
def test_waits_and_steps_are_those_of_the_statistics(driver, batch_size, path):
    loader = loader_of(driver, range(ITEMS), 3, batch_size=batch_size, shuffle_buffer=8)
    with pyecho.trace(path):
        flat(loader)
    trace, stats = Trace(path), loader.stats()
    assert trace.seconds("wait") == pytest.approx(stats.consumer_wait_seconds)
    assert trace.seconds("step") == pytest.approx(stats.downstream_seconds)


def test_wait_for_room_lies_within_its_put(path):
    def traced_waits():
        loader = loader_of("feeder", [object() for _ in range(12)], 2)
        with pyecho.trace(path):
            for _ in loader:
                time.sleep(0.002)  # while the feeder comes to the end of its room, sooner or later
        trace = Trace(path)  # which checks that spans of a thread lie within each other, or apart
        (feeder,) = {span["tid"] for span in trace.of("put") if span["args"]["items"] == 1}
        puts = [span for span in trace.of("put") if span["tid"] == feeder]
        waits = [span for span in trace.of("wait for room") if span["tid"] == feeder]
        assert len(puts) == 12
        for wait in waits:
            assert any(put["ts"] <= wait["ts"] <= put["ts"] + put["dur"] for put in puts)
        return waits

    assert wait_until(traced_waits)


def test_end_of_a_pass_that_has_room_is_no_wait(path):
    loader = loader_of("feeder", [object() for _ in range(4)], 1, prefetch=64, epochs=3)
    with pyecho.trace(path):
        assert sum(len(list(loader)) for _ in range(3)) == 12
    trace = Trace(path)
    assert len(trace.of("put", "pyecho-feeder")) == 12
    assert trace.of("wait for room") == []


def test_error_in_the_block_still_writes_the_file(path):
    with pytest.raises(ZeroDivisionError), pyecho.trace(path):
        raise ZeroDivisionError
    assert Trace(path).spans == []


def test_trace_inside_another_is_refused_and_the_first_goes_on(path, tmp_path):
    loader, other = pyecho.EchoLoader([1, 2], 2), tmp_path / "other.json"
    with pyecho.trace(path):
        with pytest.raises(pyecho.EchoError, match=r"the trace .*run\.json is being recorded"):
            pyecho.trace(other).__enter__()
        list(loader)
    assert len(Trace(path).of("step")) == 4
    assert not other.exists()
    with pyecho.trace(other):
        pass


def test_trace_that_ctrl_c_cut_short_does_not_prevent_the_next(path):
    tracing._core.trace_start()  # and no more of it
    with pyecho.trace(path):
        pass
    assert Trace(path).spans == []


def test_ctrl_c_at_any_point_does_not_prevent_the_next(path):
    def traced():
        with pyecho.trace(path):
            pass

    point, done = 0, False
    while not done:
        point += 1
        functions = tracing.Trace.__enter__, tracing.Trace.__exit__
        done = Interrupts(point, functions=functions).strikes(traced)
        traced()
    assert point > 10


def test_path_that_is_no_file_in_a_folder_is_refused_before_anything_runs(path, tmp_path):
    for wrong in (tmp_path, tmp_path / "missing" / "run.json", os.devnull, ""):
        with pytest.raises(pyecho.ConfigError, match="in an existing folder"):
            pyecho.trace(wrong).__enter__()
    with pyecho.trace(path):
        pass


def test_file_takes_the_place_of_a_link_and_lies_where_the_block_began(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("other").write_text("other")
    Path("run.json").symlink_to("other")
    with pyecho.trace("run.json"):
        monkeypatch.chdir("/")
    assert not (tmp_path / "run.json").is_symlink()
    assert Trace(tmp_path / "run.json").spans == []
    assert (tmp_path / "other").read_text() == "other"


def test_loaders_that_run_when_it_begins_or_go_on_after_it_are_in_it(path):
    before, after = pyecho.EchoLoader(range(4), 2, batch_size=1), pyecho.EchoLoader([1, 2], 2)
    running = iter(before)
    next(running)
    with pyecho.trace(path):
        assert sum(1 for _ in running) == 7
        going = iter(after)
        next(going)
    assert len(list(going)) == 3
    trace = Trace(path)
    assert len(trace.of("gather")) == 7
    assert len(trace.of("put")) == 1


def test_one_of_many_threads_begins_a_trace(tmp_path):
    start, refused = threading.Barrier(8), []

    def record(number):
        start.wait()
        try:
            with pyecho.trace(tmp_path / f"{number}.json"):
                start.wait()
                list(pyecho.EchoLoader([1], 2))
        except pyecho.EchoError:
            refused.append(number)
            start.wait()

    threads = [threading.Thread(target=record, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [written] = tmp_path.iterdir()
    assert len(refused) == 7
    assert len(Trace(written).of("wait")) == 3


def test_file_that_cannot_be_written_whole_leaves_the_old_one(path, monkeypatch):
    path.write_text("old")

    def failing(recording):
        yield {}
        raise OSError("no space left on device")

    monkeypatch.setattr(tracing, "events_of", failing)
    with pytest.raises(OSError, match="no space"), pyecho.trace(path):
        pass
    assert [each.name for each in path.parent.iterdir()] == ["run.json"]
    assert path.read_text() == "old"


def test_dropped_events_are_counted_in_the_file(path):
    recording = {
        "begin_ns": 1000,
        "events": [("put", 0, 2000, 5000, 3), ("fill", 0, 6000, 99, 4)],
        "dropped": 17,
        "threads": ["pyecho-feeder"],
    }
    tracing.write(path, tracing.events_of(recording), recording["dropped"])
    trace = Trace(path)
    assert trace.dropped == 17
    assert trace.events[-1]["name"] == "the recorder was full: 17 later events are missing"
    [put], [fill] = trace.of("put", "pyecho-feeder"), trace.counters
    assert (put["ts"], put["dur"], put["args"]) == (1, 3, {"items": 3})
    assert (fill["ts"], fill["args"]) == (5, {"items": 4})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_forked_child_writes_nothing(path):
    with pyecho.trace(path) as trace:
        child = os.fork()
        if child == 0:
            trace.__exit__(None, None, None)
            os._exit(path.exists())
        assert os.waitpid(child, 0)[1] == 0
    assert path.exists()


def test_a_trace_begins_while_another_thread_imports_torch(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    with pyecho.trace(path):
        pass
    assert path.exists()


@pytest.mark.parametrize("cuda", ["13.0", None])
def test_python_spans_are_nvtx_ranges_if_torch_has_cuda(path, monkeypatch, cuda):
    ranges = []
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", ranges.append)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: ranges.append(None))
    loader = loader_of("augmented", range(4), 1, batch_size=4)
    list(loader)
    with pyecho.trace(path):
        list(loader)
    assert ranges == ["pyecho: source", None, "pyecho: augment", None] * (cuda is not None)
