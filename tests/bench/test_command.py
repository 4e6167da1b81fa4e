"""`pyecho bench`: what it measures, prints, draws, and refuses."""

import json
import subprocess

import pytest

from pyecho.bench import repeat
from pyecho.bench.commit import commit_of
from pyecho.tools import cli


@pytest.fixture(autouse=True)
def little(monkeypatch):
    monkeypatch.setattr(repeat, "USES", 2000)


def test_json_has_every_row_with_its_limit(capsys):
    assert cli.main(["bench", "--only", "repeat,put", "--rounds", "2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {"cores", "commit"} < set(document["facts"])
    first, *others = document["rows"]
    assert first["what"] == "one repeat"
    assert first["limit_name"] == "bare generator"
    assert len(first["measured"]["values"]) == 2
    assert first["ratio"]["median"] > 0
    assert [row["unit"] for row in others] == ["ns", "us", "us", "us"]


def test_results_name_the_commit_of_a_checkout_only(tmp_path):
    def git(*arguments):
        command = ["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)

    assert commit_of(tmp_path) is None
    git("init")
    assert commit_of(tmp_path) is None  # no commit yet
    results = tmp_path / "benchmarks" / "results"
    results.mkdir(parents=True)
    for path in (results / "a.json", tmp_path / "b.py"):
        path.write_text("1")
    git("add", ".")
    git("commit", "-m", "c")
    name = commit_of(tmp_path)
    assert name
    (results / "a.json").write_text("2")
    assert commit_of(tmp_path) == name
    assert commit_of(results) is None
    (tmp_path / "b.py").write_text("2")
    assert commit_of(tmp_path) == f"{name}-dirty"


def test_a_table_of_60_columns_and_a_figure_are_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    figure = tmp_path / "bench.svg"
    assert cli.main(["bench", "--only", "repeat", "--rounds", "1", "--plot", str(figure)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 60
    assert "bare generator" in " ".join(lines)
    assert "<svg" in figure.read_text()


@pytest.mark.parametrize("arguments", [["--only", "speed"], ["--only", ","], ["--rounds", "0"]])
def test_wrong_arguments_are_refused(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["bench", *arguments])
    assert stopped.value.code == 2
    assert arguments[0] in capsys.readouterr().err
