"""`pyecho demo`: what it refuses, prints and writes, and how it ends when interrupted."""

import json
import os
import signal
import subprocess
import sys

import pytest
from trace_format import Trace

from pyecho.demo import command
from pyecho.tools.cli import main

PACKAGES = ("torch", "sklearn", "PIL", "matplotlib", "tqdm")


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--version"], 0, "pyecho "),
        (["demo", "--help"], 0, "(default: 1,2,3,5)"),
        (["info", "--help"], 0, "--json"),
        (["demo", "--factors", "1,0.5"], 2, "'0.5' is not a number from 1 to 100"),
        (["demo", "--factors", "nan"], 2, "'nan' is not a number"),
        (["demo", "--factors", "two,100.5"], 2, "'two' is not a number"),
        (["demo", "--seeds", "0"], 2, "'0' is not a whole number"),
        (["demo", "--target", "95"], 2, "'95' is not a number from 0 to 1"),
    ],
)
def test_help_and_wrong_arguments_are_explained(capsys, arguments, status, message):
    with pytest.raises(SystemExit) as exit_info:
        main(arguments)
    assert exit_info.value.code == status
    captured = capsys.readouterr()
    assert message in (captured.err if status else captured.out)


def test_factors_are_sorted_and_always_with_the_baseline():
    assert command._factors("5, 2.5,2.5") == (1, 2.5, 5)


def test_missing_packages_are_one_line_that_says_what_to_install(capsys, monkeypatch):
    """And never a package that goes by the name of a module on PyPI."""
    monkeypatch.setattr("pyecho.tools.arguments.find_spec", lambda name: None)
    assert main(["demo"]) == 2
    captured = capsys.readouterr()
    packages = captured.err.partition("pip install ")[2].split()
    assert packages == ["torch", "scikit-learn", "pillow", "matplotlib", "tqdm"]
    assert (captured.out, captured.err.count("\n")) == ("", 1)


@pytest.fixture
def demo_packages():
    torch, *_ = map(pytest.importorskip, PACKAGES)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("demo_packages")
@pytest.mark.parametrize(
    ("option", "path", "problem"),
    [
        ("--output", "missing/x.png", "No such file or directory"),
        ("--output", "figure", "needs a suffix"),
        ("--output", "figure.docx", "needs a suffix"),
        ("--json", "old.json/x.json", "Not a directory"),
        ("--json", ".", "Is a directory"),
        ("--trace", "n" * 300, "File name too long"),
    ],
)
def test_output_that_cannot_be_written_is_refused_before_anything_is_trained(
    option, path, problem, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.json").write_text("before")
    assert main(["demo", option, path]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"pyecho demo: {option} {path} ")
    assert problem in captured.err
    assert captured.err.count("\n") == 1
    assert [path.read_text() for path in tmp_path.iterdir()] == ["before"]


@pytest.mark.usefixtures("demo_packages")
def test_demo_runs_on_a_folder(capsys, image_folder, tmp_path):
    figure, numbers = tmp_path / "figure.png", tmp_path / "numbers.json"
    path = tmp_path / "trace.json"
    arguments = ["--images", image_folder, "--output", figure, "--json", numbers, "--trace", path]
    plan = ["--factors", "4", "--seeds", "1", "--target", "0.01", "--max-steps", "20"]
    assert main(["demo", *plan, *map(str, arguments)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "\x1b" not in captured.out
    assert "[2/2] e = 4, seed 1: " in captured.out
    assert figure.read_bytes().startswith(b"\x89PNG")
    document = json.loads(numbers.read_text())
    assert [run["factor"] for run in document["runs"]] == [1, 4]
    assert [row["factor"] for row in document["summary"]] == [1, 4]
    assert str(tmp_path) not in numbers.read_text()
    trace = Trace(path)
    assert trace.lanes() >= {("pyecho-feeder", "source"), ("consumer", "step")}
    steps = sum(run["steps"] for run in document["runs"])
    assert steps - 2 <= len(trace.of("step")) <= steps  # the last of a run has not ended


@pytest.mark.usefixtures("demo_packages")
def test_missed_target_is_shown_and_changes_the_exit_status(capsys, image_folder, tmp_path):
    figure = tmp_path / "figure.svg"
    plan = ["--factors", "1", "--seeds", "1", "--target", "1.0", "--max-steps", "1"]
    assert main(["demo", *plan, "--images", str(image_folder), "--output", str(figure)]) == 1
    assert "1 of 1 runs did not reach 100.0%" in capsys.readouterr().out
    assert figure.exists()


@pytest.mark.usefixtures("demo_packages")
def test_ctrl_c_ends_the_demonstration_with_one_line(tmp_path):
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import signal, sys\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "from pyecho.tools.cli import main\n"
            "sys.exit(main(['demo', '--target', '1.0']))\n",
        ],
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not process.stdout.readline().startswith("Target"):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=240)
    assert errors == "interrupted\n"
    assert process.returncode == 130
    assert list(tmp_path.glob("pyecho-demo*")) == []
