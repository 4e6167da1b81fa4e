"""`pyecho demo`: what it refuses, prints and writes, and how it ends when interrupted."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest
from trace_format import Trace

from pyecho.demo import command
from pyecho.tools.arguments import CommandError, check_figure, check_output
from pyecho.tools.cli import main

PACKAGES = ("torch", "sklearn", "PIL", "rich", "matplotlib")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--help"], "demo"),
        (["demo", "--help"], "(default: 1,2,3,5)"),
        (["info", "--help"], "--json"),
        (["--version"], "pyecho "),
    ],
)
def test_help_and_version(capsys, arguments, expected):
    with pytest.raises(SystemExit) as exit_info:
        main(arguments)
    assert exit_info.value.code == 0
    assert expected in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--factors", "1,0.5"], "'0.5' is not a number from 1 to 100"),
        (["--factors", "two"], "'two' is not a number"),
        (["--factors", "nan"], "'nan' is not a number"),
        (["--factors", "2,100.5"], "'100.5' is not a number from 1 to 100"),
        (["--seeds", "0"], "'0' is not a whole number"),
        (["--target", "95"], "'95' is not a number from 0 to 1"),
    ],
)
def test_wrong_arguments_are_explained(capsys, arguments, message):
    with pytest.raises(SystemExit) as exit_info:
        main(["demo", *arguments])
    assert exit_info.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "factors"),
    [("1,3", (1, 3)), ("5, 2.5", (1, 2.5, 5)), ("2,2,1.0", (1, 2)), ("100", (1, 100))],
)
def test_factors_are_sorted_and_always_with_the_baseline(text, factors):
    assert command._factors(text) == factors


def test_missing_packages_are_one_line_that_says_what_to_install(capsys, monkeypatch):
    """And never a package that goes by the name of a module on PyPI."""
    monkeypatch.setattr("pyecho.tools.arguments.find_spec", lambda name: None)
    assert main(["demo"]) == 2
    captured = capsys.readouterr()
    packages = captured.err.partition("pip install ")[2].split()
    assert packages == ["torch", "scikit-learn", "pillow", "rich", "matplotlib"]
    assert (captured.out, captured.err.count("\n")) == ("", 1)


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("old.json/x.json", "Not a directory"),
        ("missing/x.json", "No such file or directory"),
        (".", "Is a directory"),
        ("n" * 300, "File name too long"),
    ],
)
def test_path_that_cannot_be_written_is_named_with_its_option(tmp_path, path, problem):
    (tmp_path / "old.json").touch()
    path = tmp_path / path
    with pytest.raises(CommandError, match=f"^--json {re.escape(str(path))} .*{problem}"):
        check_output("--json", path)


def test_check_changes_nothing(tmp_path):
    (tmp_path / "old.json").write_text("before")
    for name in ("old.json", "new.json"):
        check_output("--json", tmp_path / name)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["before"]


@pytest.mark.parametrize("name", ["figure", "figure.docx"])
def test_format_that_is_unknown_is_reported_early(tmp_path, name):
    pytest.importorskip("matplotlib")
    with pytest.raises(CommandError, match=r"--output .* needs a suffix .*svg.*: choose"):
        check_figure("--output", tmp_path / name)


@pytest.fixture
def demo_packages():
    torch, *_ = map(pytest.importorskip, PACKAGES)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("demo_packages")
@pytest.mark.parametrize("option", ["--output", "--json", "--trace"])
def test_path_that_cannot_be_written_is_refused_before_anything_is_trained(
    option, capsys, tmp_path
):
    assert main(["demo", option, str(tmp_path / "missing" / "x.png")]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"pyecho demo: {option} ")
    assert captured.err.count("\n") == 1


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
