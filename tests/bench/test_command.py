"""`pyecho bench`: what it measures, prints, draws, and refuses."""

import io
import json
import subprocess
import sys

import pytest
from rich.console import Console
from rich.text import Text

from pyecho.bench import command, gather, repeat
from pyecho.bench.commit import commit_of
from pyecho.bench.progress import shown
from pyecho.bench.row import Row
from pyecho.bench.sampling import Sample
from pyecho.bench.table import print_table
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


ROWS = [
    Row("gather 150,528 B rows, of all cores", Sample((32_322.0, 48_117.0)), "ns"),
    Row(
        "hand-over of a batch of one example, p99",
        Sample((12_345.0, 98_765.0)),
        "ns",
        Sample((11_111.0, 11_111.0)),
        "condition variable",
        target="<= 1.5 us",
    ),
]
FACTS = {
    "cpu": "AMD EPYC 9654 96-Core Processor with a long name",
    "cores": 192,
    "python": "CPython 3.11.7",
    "pyecho": "0.1.0",
    "commit": "v0.1.0-123-gde26ce2-dirty",
}


@pytest.mark.parametrize("columns", [80, 60])
def test_a_table_fits_the_terminal_and_cuts_no_name(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    print_table(ROWS, FACTS)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    words = " ".join(" ".join(lines).split())
    for row in ROWS:
        assert row.what in words
    assert "against condition variable" in words
    assert "[1.11, 8.89]" in words
    assert "v0.1.0-123-gde26ce2-dirty" in words


@pytest.mark.parametrize("columns", [80, 60])
def test_progress_fits_the_terminal_and_cuts_no_name(columns, monkeypatch):
    terminal = Console(width=columns, force_terminal=True, file=io.StringIO())
    monkeypatch.setattr("rich.console.Console", lambda **_: terminal)
    with shown() as progress:
        progress.begin("Eq. 1", 2)
        progress.advance("e = 5, example echoing")
    text = Text.from_ansi(terminal.file.getvalue()).plain
    assert "Eq. 1: e = 5, example echoing" in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= columns


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


def test_a_table_and_a_figure_are_written(tmp_path, capsys):
    figure = tmp_path / "bench.svg"
    assert cli.main(["bench", "--only", "repeat", "--rounds", "1", "--plot", str(figure)]) == 0
    assert "bare generator" in capsys.readouterr().out
    assert "<svg" in figure.read_text()


@pytest.mark.parametrize(
    ("plot", "needed"),
    [
        ("bench", "needs a suffix"),
        ("no/such/folder/bench.png", "needs an existing folder"),
        ("folder.png", "must be a file"),
    ],
)
def test_a_figure_that_cannot_be_written_is_refused_before_anything_is_measured(
    plot, needed, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.png").mkdir()
    monkeypatch.setattr(command, "_measurements", lambda *_: pytest.fail("measured"))
    assert cli.main(["bench", "--plot", plot]) == 1
    assert needed in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--only", "speed"], ["--only", ","], ["--rounds", "0"]])
def test_wrong_arguments_are_refused(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["bench", *arguments])
    assert stopped.value.code == 2
    assert arguments[0] in capsys.readouterr().err


def test_a_missing_package_is_named(monkeypatch, capsys):
    monkeypatch.setattr("pyecho.tools.arguments.find_spec", lambda name: None)
    assert cli.main(["bench"]) == 2
    assert "pip install rich" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "rich", None)
    assert cli.main(["bench", "--only", "repeat", "--rounds", "1", "--json"]) == 0


def test_names_of_workloads_tell_what_is_not_usual():
    assert gather.Workload(3072).name() == "gather 3,072 B rows"
    unusual = gather.Workload(64, batch_size=16, capacity=100, factor=1, threads=2)
    assert unusual.name() == "gather 64 B rows, e = 1, batch 16, capacity 100, 2 threads"


def test_work_is_bounded_and_fills_the_pool_eight_times():
    assert gather.Workload(602_112, capacity=1024).fresh(1) == 8192
    assert gather.Workload(1).fresh(1 << 40) == 1_500_000
