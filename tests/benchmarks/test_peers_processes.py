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
SMALL = {"shape": (64,), "rows": 1024, "pool": 512, "factor": 4, "batch": 128, "threads": 2}


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)


def small_work(**changes):
    from peers.workload import Work

    return Work(**{"title": "small", "kind": "examples", **SMALL, **changes})


def test_a_worker_checks_and_measures(tmp_path):
    from peers.process import WorkerFailed, WorkerProcess

    log = tmp_path / "logs" / "worker.log"
    with WorkerProcess(Path(sys.executable), "plain_numpy", log, 60) as process:
        assert process.ask("versions", packages=["numpy"])["versions"] == {"numpy": np.__version__}
        process.ask("prepare", work=small_work().as_json(), function="taken")
        found = process.ask("check")
        assert found["exact"]
        assert found["uses"] == [4, 4]
        answer = process.ask("measure", batches=64)
        assert answer["seconds"] > 0
        process.ask("prepare", work=small_work().as_json(), function="nothing")
        with pytest.raises(WorkerFailed, match="AttributeError"):
            process.ask("measure", batches=1)
        process.ask("release")
        with pytest.raises(WorkerFailed, match="prepare comes first"):
            process.ask("measure", batches=1)
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(WorkerFailed, match="ended with signal 9"):
            process.ask("check")


def test_batch_echoing_counts_batches(tmp_path):
    from peers.process import WorkerProcess

    with WorkerProcess(Path(sys.executable), "limits", tmp_path / "log", 60) as process:
        work = small_work(kind="batches")
        process.ask("prepare", work=work.as_json(), function="generator")
        found = process.ask("check")
        assert found["exact"]
        assert found["uses"] == [4, 4]


def test_a_worker_that_is_too_slow_is_ended(tmp_path):
    from peers.process import WorkerFailed, WorkerProcess

    with WorkerProcess(Path(sys.executable), "plain_numpy", tmp_path / "log", 60) as process:
        process.ask("prepare", work=small_work().as_json(), function="taken")
        process._seconds = 0.2
        with pytest.raises(WorkerFailed, match="no answer within 0 s"):
            process.ask("measure", batches=10**9)
        process._seconds = 60
        with pytest.raises(WorkerFailed, match="ended with signal 9"):
            process.ask("release")  # and not the answer to what was asked before


def test_a_worker_ends_with_the_runner(tmp_path):
    script = """
import os, pathlib, sys
sys.path.insert(0, sys.argv[1])
from peers.process import WorkerProcess
process = WorkerProcess(pathlib.Path(sys.executable), "limits", pathlib.Path(sys.argv[2]), 60)
print(process.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(BENCHMARKS), str(tmp_path / "log")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    pid = int(done.stdout)
    until = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "31", "x"])
def test_the_length_of_a_measurement_is_checked(seconds, capsys):
    from peers.command import parsed_arguments

    with pytest.raises(SystemExit):
        parsed_arguments([f"--seconds={seconds}"])
    assert "more than 0 and at most 30 seconds" in capsys.readouterr().err


def test_an_interrupted_run_keeps_what_is_finished(tmp_path, monkeypatch):
    from peers import command, measuring

    measure = measuring.measure
    works = []

    def interrupted(work, *arguments, **options):
        works.append(work)
        if len(works) > 1:
            raise KeyboardInterrupt
        return measure(work, *arguments, **options)

    monkeypatch.setattr(measuring, "measure", interrupted)
    arguments = ["--only", "numpy-take", "--quick", "--seconds", "0.01", "--rounds", "1"]
    assert command.main([*arguments, "--output", str(tmp_path)]) == 130
    (as_markdown,) = tmp_path.glob("peers-*-partial.md")
    assert "interrupted: some workloads" in as_markdown.read_text()


def test_a_folder_that_cannot_be_made_is_found_before_anything_is_measured(tmp_path, capsys):
    from peers.command import main

    (tmp_path / "file").touch()
    assert main(["--output", str(tmp_path / "file" / "results")]) == 1
    assert "see --output" in capsys.readouterr().err


def test_a_worker_that_cannot_start_has_failed(tmp_path):
    from peers.process import WorkerFailed, WorkerProcess

    with pytest.raises(WorkerFailed, match="No module named"):
        WorkerProcess(Path(sys.executable), "nobody", tmp_path / "log", 60)
    with pytest.raises(WorkerFailed, match="no answer within 0 s"):
        WorkerProcess(Path(sys.executable), "limits", tmp_path / "log", 0.0)


CHATTY = """
import contextlib, os, sys, types
module = types.ModuleType("peers.contestants.chatty")
@contextlib.contextmanager
def examples(work, source):
    print("a library's greeting")
    os.system("echo and that of a child")
    if work.title == "die":
        os._exit(3)
    yield iter([source.rows] * 3)
module.examples = examples
sys.modules[module.__name__] = module
sys.argv = ["worker", "chatty"]
from peers.worker import main
main()
"""


def talk(*requests):
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run(
        [sys.executable, "-c", CHATTY],
        input=lines,
        capture_output=True,
        text=True,
        check=False,
        cwd=BENCHMARKS,
        timeout=60,
    )
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_what_a_library_prints_does_not_reach_the_protocol():
    work = small_work().as_json()
    answers, errors = talk(
        {"do": "prepare", "work": work, "function": "examples"},
        {"do": "measure", "batches": 2},
    )
    assert answers[0] == {"ready": True}
    assert "a library's greeting" in errors
    assert "and that of a child" in errors
    # Three batches are fewer than the warm-up takes: nothing that was timed would be true.
    assert "StopIteration" in answers[2]["error"]


def test_a_worker_that_dies_leaves_an_end_of_file():
    work = small_work(title="die").as_json()
    answers, _ = talk(
        {"do": "prepare", "work": work, "function": "examples"}, {"do": "check"}, {"do": "check"}
    )
    assert len(answers) == 2


@pytest.fixture
def tiny(monkeypatch):
    from peers import command
    from peers.workloads import Planned

    planned = (
        Planned("batch", "Batches", (64,), 512, 1, "batches"),
        Planned("64B", "Rows | 64 B", (64,), 512, 2, target=4.0),
    )
    monkeypatch.setattr(command, "PLANNED", planned)
    monkeypatch.setattr(command, "ROUNDS", 2)
    monkeypatch.setattr(command, "SECONDS", 0.002)


def test_a_peer_that_cannot_be_installed_is_reported_and_the_others_are_measured(
    tiny, tmp_path, monkeypatch, capsys
):
    from peers.command import main
    from peers.environments import EnvironmentFailed, Environments

    def python(self, requirements):
        if requirements == "grain.txt":
            raise EnvironmentFailed("no matching distribution")
        return Path(sys.executable)

    monkeypatch.setattr(Environments, "python", python)
    arguments = ["--only", "grain,numpy-take", "--output", str(tmp_path)]
    arguments += ["--environments", str(tmp_path / "environments")]
    assert main(arguments) == 1
    (as_json,) = tmp_path.glob("peers-*.json")
    result = json.loads(as_json.read_text())
    assert "Grain: could not be installed: no matching distribution" in result["notes"]
    rows = {(row["section"], row["what"]): row for row in result["rows"]}
    ours = rows["Rows | 64 B", "pyecho"]
    theirs = rows["Rows | 64 B", "NumPy, blocks + take"]
    assert ours["ratio"]["median"] == 1.0
    assert theirs["target"] == ">= 4"
    pairs = zip(ours["measured"]["values"], theirs["measured"]["values"], strict=True)
    assert theirs["ratio"]["values"] == pytest.approx([a / b for a, b in pairs])
    assert theirs["limit_name"] == ""
    assert theirs["limit"]["median"] > 0
    assert rows["Batches", "pyecho"]["unit"] == "us/batch"
    assert [each["work"]["kind"] for each in result["workloads"]] == ["batches", "examples"]
    assert all(each["exact"] for each in result["workloads"][1]["results"] if not each["limit"])
    assert as_json.stem.endswith("-partial")
    assert "pyecho's speed over its speed" in capsys.readouterr().out
    if (tmp_path / f"{as_json.stem}.svg").exists():
        assert "NumPy, blocks + take" in (tmp_path / f"{as_json.stem}.svg").read_text()
