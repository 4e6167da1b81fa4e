import json
import subprocess
import sys

import numpy as np
import pytest

from pyecho.tools import info
from pyecho.tools.cli import main

NO_CUDA = {
    "cuda_driver": None,
    "cuda_missing": "no CUDA driver was found",
    "cuda_devices": [],
}


@pytest.fixture(autouse=True)
def no_cuda(monkeypatch):
    """Keep the driver of this process for the tests of CUDA."""
    monkeypatch.setattr(info, "collect_cuda", lambda: NO_CUDA)
    monkeypatch.setenv("PYECHO_CUDA_DRIVER", "none")


def test_text_names_every_fact_in_aligned_columns(capsys):
    assert main(["info"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.split("  ")[0] for line in lines]
    assert {"NumPy", "torch", "huge pages", "memlock limit", "CUDA"} <= set(names)
    starts = {
        len(line) - len(line[len(name) :].lstrip()) for line, name in zip(lines, names, strict=True)
    }
    assert len(starts) == 1


def test_json_holds_the_same_facts(capsys):
    assert main(["info", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts == info.collect() | NO_CUDA
    assert facts["numpy"] == np.__version__
    assert facts["cores"] >= 1


def test_only_numpy_is_needed(tmp_path):
    code = (
        "import sys\n"
        "for name in ('torch', 'sklearn', 'PIL', 'rich', 'matplotlib'):\n"
        "    sys.modules[name] = None\n"
        "from pyecho.tools.cli import main\n"
        "sys.exit(main(['info']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def test_python_m_pyecho_is_the_same(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "pyecho", "info", "--json"], cwd=tmp_path, capture_output=True
    )
    missing = {"cuda_missing": "CUDA is switched off by PYECHO_CUDA_DRIVER=none; unset it"}
    assert json.loads(done.stdout) == info.collect() | NO_CUDA | missing


@pytest.mark.parametrize(
    ("content", "mode"),
    [("always [madvise] never\n", "madvise"), ("[always] madvise never\n", "always"), ("", None)],
)
def test_the_mode_of_huge_pages_is_the_one_in_brackets(monkeypatch, tmp_path, content, mode):
    path = tmp_path / "enabled"
    path.write_text(content)
    monkeypatch.setattr(info, "_HUGE_PAGES", path)
    assert info.collect()["huge_pages"] == mode


def test_what_the_system_does_not_tell_is_said_so(monkeypatch, tmp_path):
    monkeypatch.setattr(info, "_HUGE_PAGES", tmp_path / "missing")
    monkeypatch.setattr(info, "_CPU_LIST", tmp_path / "missing")
    monkeypatch.setattr(info, "_installed", lambda name: None)
    text = info.as_text(info.collect() | NO_CUDA | {"memlock_bytes": None})
    values = dict(line.split("  ", 1) for line in text.splitlines())
    assert values["CPU"].strip() == values["huge pages"].strip() == "unknown"
    assert values["torch"].strip() == "not found"
    assert values["memlock limit"].strip() == "unlimited"


def test_devices_are_listed():
    found = {
        "cuda_driver": "12.8",
        "cuda_missing": "",
        "cuda_devices": ["one", "two"],
    }
    text = info.as_text(info.collect() | found)
    assert "12.8" in text
    assert "one, two" in text
