"""The examples in README and documentation run.

The ```python blocks of a file run in order, in one namespace, in a folder of their own. A block
whose fence says ```python no-run is left out.
"""

import gc
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(?P<words>[^\n]*)\n(?P<code>.*?)^```\s*$", re.DOTALL | re.MULTILINE)


def blocks(text):
    """Yield (line of the first statement, code) of each block that is to run."""
    for found in FENCE.finditer(text):
        words = found["words"].split()
        if words[:1] == ["python"] and "no-run" not in words:
            yield text.count("\n", 0, found.start("code")) + 1, found["code"]


def documents():
    return [
        path
        for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
        if path.exists() and any(blocks(path.read_text()))
    ]


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_examples_run(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    for line, code in blocks(path.read_text()):
        # Blank lines in front, so that a traceback names the line of the document.
        exec(compile("\n" * (line - 1) + code, str(path), "exec"), namespace)
    namespace.clear()
    gc.collect()  # loaders, and so their threads


def test_blocks_are_found_by_their_fence():
    text = "```python\na\n```\n\n```python no-run\nb\n```\n```sh\nc\n```\n```python\nd\n\ne\n```\n"
    assert list(blocks(text)) == [(2, "a\n"), (12, "d\n\ne\n")]
