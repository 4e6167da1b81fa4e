"""The processes of the peers: the protocol, its failures, and a run of a few contestants."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def worker(tmp_path):
    """Return a function that starts a worker."""
    from peers.process import WorkerProcess

    def worker(module, seconds=60):
        return WorkerProcess(Path(sys.executable), module, tmp_path / "logs" / "log", seconds)

    return worker


def test_a_worker_checks_and_measures(worker, small_work):
    from peers.process import WorkerFailed

    with worker("plain_numpy") as process:
        assert process.ask("versions", packages=["numpy"])["versions"] == {"numpy": np.__version__}
        process.ask("prepare", work=small_work().as_json(), function="taken")
        found = process.ask("check")
        assert (found["exact"], found["uses"]) == (True, [4, 4])
        assert process.ask("measure", batches=64)["seconds"] > 0
        process.ask("prepare", work=small_work().as_json(), function="nothing")
        with pytest.raises(WorkerFailed, match="AttributeError"):
            process.ask("measure", batches=1)
        process.ask("release")
        with pytest.raises(WorkerFailed, match="prepare comes first"):
            process.ask("measure", batches=1)
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(WorkerFailed, match="ended with signal 9"):
            process.ask("check")


def test_a_worker_that_is_too_slow_is_ended_and_one_that_cannot_start_has_failed(
    worker, small_work
):
    from peers.process import WorkerFailed

    with worker("plain_numpy") as process:
        process.ask("prepare", work=small_work().as_json(), function="taken")
        process._seconds = 0.2
        with pytest.raises(WorkerFailed, match="no answer within 0 s"):
            process.ask("measure", batches=10**9)
        process._seconds = 60
        with pytest.raises(WorkerFailed, match="ended with signal 9"):
            process.ask("release")  # and not the answer to what was asked before
    with pytest.raises(WorkerFailed, match="No module named"):
        worker("nobody")


def test_a_worker_ends_with_the_runner(tmp_path):
    script = """
import os, pathlib, sys
sys.path.insert(0, sys.argv[1])
from peers.process import WorkerProcess
process = WorkerProcess(pathlib.Path(sys.executable), "limits", pathlib.Path(sys.argv[2]), 60)
print(process.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    arguments = ["-c", script, str(BENCHMARKS), str(tmp_path / "log")]
    done = subprocess.run([sys.executable, *arguments], capture_output=True, timeout=240)
    alive = Path(f"/proc/{int(done.stdout)}")
    until = time.monotonic() + 30
    while alive.exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert not alive.exists()


CHATTY = """
import contextlib, os, sys, types
module = types.ModuleType("peers.contestants.chatty")
@contextlib.contextmanager
def examples(work, source):
    print("a library's greeting")
    os.system("echo and that of a child")
    yield iter([source.rows] * 3)
module.examples = examples
sys.modules[module.__name__] = module
sys.argv = ["worker", "chatty"]
from peers.worker import main
main()
"""


def test_what_a_library_prints_does_not_reach_the_protocol(small_work):
    requests = (
        {"do": "prepare", "work": small_work().as_json(), "function": "examples"},
        {"do": "measure", "batches": 2},
    )
    done = subprocess.run(
        [sys.executable, "-c", CHATTY],
        input="".join(json.dumps(request) + "\n" for request in requests),
        capture_output=True,
        text=True,
        cwd=BENCHMARKS,
        timeout=240,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert answers[0] == {"ready": True}
    # Three batches are fewer than the warm-up takes: nothing that was timed would be true.
    assert "StopIteration" in answers[2]["error"]
    assert "a library's greeting" in done.stderr
    assert "and that of a child" in done.stderr


# The command


def test_an_interrupted_run_keeps_what_is_finished(tmp_path, monkeypatch):
    from peers import command, measuring
    from peers.environments import Environments

    measure = measuring.measure
    works = []

    def interrupted(work, *arguments, **options):
        works.append(work)
        if len(works) > 1:
            raise KeyboardInterrupt
        return measure(work, *arguments, **options)

    monkeypatch.setattr(measuring, "measure", interrupted)
    monkeypatch.setattr(Environments, "python", lambda self, requirements: Path(sys.executable))
    arguments = ["--only", "numpy-take", "--quick", "--seconds", "0.01", "--rounds", "1"]
    arguments += ["--environments", str(tmp_path / "environments")]
    assert command.main([*arguments, "--output", str(tmp_path)]) == 130
    (as_markdown,) = tmp_path.glob("peers-*-partial.md")
    assert "interrupted" in as_markdown.read_text()


def test_a_folder_that_cannot_be_made_is_found_before_anything_is_measured(tmp_path, capsys):
    from peers.command import main

    (tmp_path / "file").touch()
    assert main(["--output", str(tmp_path / "file" / "results")]) == 1
    assert "see --output" in capsys.readouterr().err


def test_a_peer_that_cannot_be_installed_is_reported_and_the_others_are_measured(
    tmp_path, monkeypatch
):
    from peers import command
    from peers.environments import EnvironmentFailed, Environments
    from peers.workloads import Planned

    def python(self, requirements):
        if requirements == "grain.txt":
            raise EnvironmentFailed("no matching distribution")
        return Path(sys.executable)

    planned = (
        Planned("batch", "Batches", (64,), 512, 1, "batches"),
        Planned("64B", "Rows | 64 B", (64,), 512, 2, target=4.0),
    )
    monkeypatch.setattr(command, "PLANNED", planned)
    monkeypatch.setattr(command, "ROUNDS", 2)
    monkeypatch.setattr(command, "SECONDS", 0.002)
    monkeypatch.setattr(Environments, "python", python)
    arguments = ["--only", "grain,numpy-take", "--output", str(tmp_path)]
    assert command.main([*arguments, "--environments", str(tmp_path / "environments")]) == 1
    (as_json,) = tmp_path.glob("peers-*.json")
    assert as_json.stem.endswith("-partial")
    result = json.loads(as_json.read_text())
    assert any("Grain" in note and "no matching" in note for note in result["notes"])
    rows = {(row["section"], row["what"]): row for row in result["rows"]}
    ours = rows["Rows | 64 B", "pyecho"]
    theirs = rows["Rows | 64 B", "NumPy, blocks + take"]
    pairs = zip(ours["measured"]["values"], theirs["measured"]["values"], strict=True)
    assert theirs["ratio"]["values"] == pytest.approx([a / b for a, b in pairs])
    assert theirs["target"] == ">= 4"
    assert rows["Batches", "pyecho"]["unit"] == "us/batch"
    results = [each for workload in result["workloads"] for each in workload["results"]]
    assert all(each["exact"] for each in results if not each["limit"])
