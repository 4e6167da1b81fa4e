"""`pyecho bench`: what it measures, prints, writes and refuses, and the ratios of known times."""

import json
import subprocess

import pytest

from pyecho.bench import command, gather, measurements
from pyecho.bench.report import commit_of
from pyecho.bench.row import Row, pooled
from pyecho.bench.sampling import Sample, interleaved
from pyecho.tools import cli


@pytest.fixture(autouse=True)
def little(monkeypatch):
    monkeypatch.setattr(gather, "BYTES_EMITTED", 1 << 20)
    for name, count in {"USES": 2000, "FRESH": 2000, "HAND_OVERS": 20, "BATCHES": 10}.items():
        monkeypatch.setattr(measurements, name, count)


def test_contestants_take_turns_and_ratios_are_those_of_rounds():
    order = []

    def contestant(name, *seconds):
        def measure():
            order.append(name)
            return seconds[order.count(name) - 1]

        return measure

    contestants = {"ours": contestant("ours", 9.0, 2.0, 6.0), "bare": contestant("bare", 9, 1, 2)}
    found = interleaved("race", 2, contestants)
    assert order == ["bare", "ours", "ours", "bare", "bare", "ours"]
    row = Row("race", found["ours"], "s", found["bare"], "bare")
    assert row.compared().values == (2.0, 3.0)
    other = Row("race", Sample((4.0,)), "s", Sample((1.0,)), "bare")
    assert pooled([row, other]).compared().values == (2.5, 4.0)


def test_measurements_have_rows_with_limits_and_medians_of_runs(tmp_path, capsys):
    figure, folder = tmp_path / "bench.svg", tmp_path / "new"
    arguments = ["--rows", "64,5000", "--threads", "0,2", "--plot", str(figure)]
    arguments += ["--shuffle-buffer", "50", "--rounds", "1", "--runs", "2", "--json"]
    arguments += ["--output", str(folder)]
    assert cli.main(["bench", *arguments]) == 0
    document = json.loads(capsys.readouterr().out)
    rows = document["rows"]
    assert list(dict.fromkeys(row["section"] for row in rows)) == list(command.MEASUREMENTS)
    assert {"cores", "commit"} < set(document["facts"])
    names = [row["what"] for row in rows]
    assert "gather 5,000 B rows, shuffle buffer 50, threads 2" in names
    compared = [row for row in rows if row["ratio"] is not None]
    assert len(compared) >= len(rows) - 2
    assert all(len(row["ratio"]["values"]) == 2 and row["ratio"]["min"] > 0 for row in compared)
    (table,) = folder.glob("overhead-*.md")
    assert [
        row["what"] for row in json.loads(table.with_suffix(".json").read_text())["rows"]
    ] == names
    assert all(f"| {name} |" in table.read_text() for name in names)
    assert "<svg" in figure.read_text()


def test_table_names_the_limits(capsys):
    assert cli.main(["bench", "--only", "repeat", "--rounds", "1"]) == 0
    assert "bare generator" in capsys.readouterr().out


def test_results_name_the_commit_of_a_checkout_only(tmp_path):
    def git(*arguments):
        command = ["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)

    results, source = tmp_path / "benchmarks" / "results" / "a.json", tmp_path / "csrc/core/b.cpp"
    for path in (results, source):
        path.parent.mkdir(parents=True)
        path.write_text("1")
    assert commit_of(tmp_path) is None
    git("init")
    git("add", ".")
    git("commit", "-m", "c")
    name = commit_of(tmp_path)
    results.write_text("2")
    assert name
    assert commit_of(tmp_path) == name
    source.write_text("2")
    ran, monitor = tmp_path / "ran", tmp_path / "monitor"
    monitor.write_text(f"#!/bin/sh\ntouch {ran}\n")
    monitor.chmod(0o700)
    git("config", "core.fsmonitor", str(monitor))
    assert commit_of(tmp_path) == f"{name}-dirty"
    assert not ran.exists(), "a program that the checkout names was run"


@pytest.mark.parametrize(
    "arguments",
    [["--only", "speed"], ["--only", ","], ["--rounds", "0"], ["--rows", "1,a"], ["--factor", "0"]],
)
def test_wrong_arguments_are_refused(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["bench", *arguments])
    assert stopped.value.code == 2
    assert arguments[0] in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--plot", "--output"])
def test_path_that_cannot_be_written_is_refused_before_anything_is_measured(
    option, tmp_path, monkeypatch, capsys
):
    (tmp_path / "file").touch()
    monkeypatch.setattr(measurements, "repeat", lambda *_: pytest.fail("measured"))
    assert cli.main(["bench", option, str(tmp_path / "file" / "a.png")]) == 1
    assert option in capsys.readouterr().err
