"""Results of benchmarks that are older than the last change of csrc are marked by `make docs`."""

import importlib.util
import json
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
CONF = Path(__file__).parents[2] / "docs" / "conf.py"


@pytest.fixture
def conf():
    spec = importlib.util.spec_from_file_location("docs_conf", CONF)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_link_to_results_says_that_the_native_code_has_changed_since(conf, tmp_path):
    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        command = ["git", *identity, *arguments]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)

    def commit(name):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{len(list(tmp_path.rglob('*')))}")
        git("add", name)
        git("commit", "-m", name)
        return git("rev-parse", "--short", "HEAD").stdout.strip()

    git("init")
    before = commit("csrc/a.cpp")
    results = tmp_path / "benchmarks" / "results" / "some.json"
    results.parent.mkdir(parents=True)
    page = "the [table](../benchmarks/results/some.md), and [text](other.md)"

    def marked(measured_at):
        results.write_text(json.dumps({"facts": {"commit": measured_at}}))
        return conf.marked(page, tmp_path)

    commit("docs/a.md")
    assert marked(before) == page
    commit("csrc/b.cpp")
    stale = page.replace("some.md)", f"some.md){conf.STALE}")
    assert marked(before) == stale
    assert marked(None) == stale
    assert marked(f"{before}-dirty") == stale


def test_each_result_that_a_page_links_is_there(conf):
    for path in CONF.parent.glob("*.md"):
        text = path.read_text()
        assert conf.marked(text).replace(conf.STALE, "") == text
