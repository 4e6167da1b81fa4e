"""The examples in README and documentation run.

The ```python blocks of a file run in order, in one namespace, in a folder of their own. A block
whose fence says ```python no-run is compiled only.
"""

import gc
import inspect
import multiprocessing
import re
from pathlib import Path

import pytest

import pyecho
import pyecho.torch

ROOT = Path(__file__).parents[2]
GET_CONTEXT = multiprocessing.get_context
FENCE = re.compile(r"^```(?P<words>[^\n]*)\n(?P<code>.*?)^```\s*$", re.DOTALL | re.MULTILINE)


def blocks(text, *, run=True):
    """Yield (line of the first statement, code) of each block that runs, or that does not."""
    for found in FENCE.finditer(text):
        words = found["words"].split()
        if words[:1] == ["python"] and ("no-run" not in words) == run:
            yield text.count("\n", 0, found.start("code")) + 1, found["code"]


def compiled(path, line, code):
    # Blank lines in front, so that a traceback names the line of the document.
    return compile("\n" * (line - 1) + code, str(path), "exec")


def documents(*, run=True):
    return [
        path
        for path in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")))
        if any(blocks(path.read_text(), run=run))
    ]


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_examples_run(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # Without fork, workers would import the classes of an example from a module, which it is not.
    monkeypatch.setattr(
        multiprocessing, "get_context", lambda given=None: GET_CONTEXT(given or "fork")
    )
    namespace = {"__name__": "__main__"}
    for line, code in blocks(path.read_text()):
        exec(compiled(path, line, code), namespace)
    namespace.clear()
    gc.collect()  # loaders, and so their threads


@pytest.mark.parametrize("path", documents(run=False), ids=lambda path: path.name)
def test_examples_that_do_not_run_compile(path):
    for line, code in blocks(path.read_text(), run=False):
        compiled(path, line, code)


def test_blocks_are_found_by_their_fence():
    text = "```python\na\n```\n\n```python no-run\nb\n```\n```sh\nc\n```\n```python\nd\n\ne\n```\n"
    assert list(blocks(text)) == [(2, "a\n"), (12, "d\n\ne\n")]
    assert list(blocks(text, run=False)) == [(6, "b\n")]


@pytest.mark.parametrize(
    ("loader", "count"), [(pyecho.EchoLoader, 31), (pyecho.torch.EchoLoader, 33)]
)
def test_every_option_is_used_in_an_example(loader, count):
    code = [path.read_text() for path in (ROOT / "examples").rglob("*.py")]
    for path in {*documents(), *documents(run=False)}:
        code += [code for run in (True, False) for _, code in blocks(path.read_text(), run=run)]
    options = inspect.signature(loader).parameters
    assert len(options) == count
    used = set(re.findall(r'\b(\w+)=|"(\w+)":', "\n".join(code)))
    used = {name for pair in used for name in pair}
    assert set(options) - used == {"source"}
