import json
import subprocess
import sys

import numpy as np
import pytest

from pyecho import _core, info
from pyecho.cli import main


def test_text_names_every_fact(capsys):
    assert main(["info"]) == 0
    lines = capsys.readouterr().out.splitlines()
    build = _core.build_info()
    assert lines[0].split(None, 1)[1] == (
        f"{build['version']} ({build['build_type']} build, {build['compiler']})"
    )
    names = "\n".join(lines)
    for name in ("Python", "NumPy", "torch", "cores", "huge pages", "memlock limit"):
        assert name in names


def test_values_are_aligned(capsys):
    main(["info"])
    starts = set()
    for line in capsys.readouterr().out.splitlines():
        name = line.split("  ")[0]
        starts.add(len(line) - len(line[len(name) :].lstrip()))
    assert len(starts) == 1


def test_json_holds_the_same_facts(capsys):
    assert main(["info", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts == info.collect()
    assert facts["numpy"] == np.__version__
    assert facts["cores"] >= 1


def test_only_numpy_is_needed(tmp_path):
    code = (
        "import sys\n"
        "for name in ('torch', 'sklearn', 'PIL', 'rich', 'matplotlib'):\n"
        "    sys.modules[name] = None\n"
        "from pyecho.cli import main\n"
        "sys.exit(main(['info']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""


def test_python_m_pyecho_is_the_same(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "pyecho", "info"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout == info.as_text(info.collect()) + "\n"


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
    text = info.as_text(info.collect())
    assert "CPU            unknown" in text
    assert "huge pages     unknown" in text
    assert "torch          not found" in text


def test_no_memlock_limit_is_called_unlimited():
    facts = info.collect() | {"memlock_bytes": None}
    assert info.as_text(facts).endswith("memlock limit  unlimited")
