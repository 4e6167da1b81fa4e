"""pyecho advise: what it runs, prints and draws, and its errors."""

import json
import os
import re
import subprocess
import sys

import pytest

from pyecho.tools.cli import main

PIPELINES = """
import pyecho

def source():
    for number in range(1000):
        yield number

def loader():
    return pyecho.EchoLoader(source(), 3, batch_size=2)

def with_step():
    return loader(), print

def arrays():
    import numpy as np
    return np.zeros((20, 2)), np.zeros(20)

def without_step():
    return loader(), None

def with_validation():
    return loader(), loader()

def alone():
    return (loader(),)

def unreadable():
    open("nowhere.bin")

missing = 1
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "pipelines.py"
    path.write_text(PIPELINES)
    return path


@pytest.mark.parametrize("name", ["source", "loader", "with_step", "without_step", "arrays"])
def test_advise_takes_a_function_that_returns_a_source_or_a_loader(name, file, capsys):
    assert main(["advise", f"{file}:{name}", "--steps", "20", "--json"]) == 0
    out = capsys.readouterr().out
    advice = json.loads(out[out.index("{\n") :])
    assert advice["factor"] == (1 if name in ("source", "arrays") else 3)
    assert (advice["times"]["downstream"] > 0) == (name == "with_step")
    assert [each["factor"] for each in advice["predictions"]] == [1, 2, 3, 4, 5, 8]


def test_table_and_the_figure(file, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    figure = tmp_path / "advice.svg"
    plot = ["--steps", "20", "--plot", str(figure)]
    assert main(["advise", f"{file}:with_step", *plot]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^e +steps/s +20 steps +idle +accelerator$", out, re.MULTILINE)
    assert "At e = 3 the limit is the " in out
    assert "<svg" in figure.read_text()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nowhere.py:f", "there is no file nowhere.py"),
        ("{file}:missing", "has no function missing"),
    ],
)
def test_advise_says_in_one_line_that_a_file_or_function_is_missing(target, message, file, capsys):
    assert main(["advise", target.format(file=file), "--json"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("pyecho advise: ")
    assert err.endswith(f"{message}\n")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "kinds"),
    [("with_validation", r"(EchoLoader, EchoLoader)"), ("alone", "(EchoLoader)")],
)
def test_advise_measures_no_tuple_of_loaders(name, kinds, file, capsys):
    assert main(["advise", f"{file}:{name}", "--json"]) == 1
    err = capsys.readouterr().err
    assert f"(loader, step); it returned {kinds}\n" in err


def test_advise_shows_where_a_file_of_the_pipeline_is_missing(file, capsys):
    assert main(["advise", f"{file}:unreadable", "--json"]) == 1
    err = capsys.readouterr().err
    assert "in unreadable" in err
    assert "nowhere.bin" in err.splitlines()[-1]


def test_output_that_nobody_reads_ends_a_command_without_a_word():
    read, write = os.pipe()
    os.close(read)
    program = "import sys; from pyecho.tools.cli import main; sys.exit(main(['info']))"
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], stdout=write, stderr=subprocess.PIPE, text=True
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")
