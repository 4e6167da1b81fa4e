"""Runs PyTorch's own tests of its DataLoader with loaders of pyecho's around each DataLoader.

    python tools/wrapped_dataloader_tests.py test_dataloader.py [NAME ...]

The file is ``test/test_dataloader.py`` of PyTorch, or that of the same name in
``test/stateful_dataloader`` of torchdata; its tests need expecttest and psutil, and this
pytest-timeout. All of them, or those that -k of pytest selects by NAME, run twice: plain, and with
every ``DataLoader(...)`` replaced by ``EchoLoader(DataLoader(...), factor=1)``, also in processes
that they start. Prints how many passed, and the tests with another outcome. The status is 1 if some
pass plain only.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

WRAPPED = """
class DataLoader:
    wrapped = DataLoader

    def __new__(cls, *args, **kwargs):
        import pyecho.torch
        return pyecho.torch.EchoLoader(cls.wrapped(*args, **kwargs), factor=1)

    def __class_getitem__(cls, item):
        return cls.wrapped[item]
"""


def main() -> int:
    """Run the tests twice and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    source = arguments.file.read_text()
    plain = outcomes(source, arguments.names)
    wrapped = outcomes(with_wrapped_loaders(source), arguments.names)
    for name in sorted(plain | wrapped):
        before, after = plain.get(name, "missing"), wrapped.get(name, "missing")
        if before.split(":")[0] != after.split(":")[0]:
            print(f"{name}: plain {before}; wrapped {after}")
    for title, found in (("plain", plain), ("wrapped", wrapped)):
        print(f"{title}: {list(found.values()).count('passed')} of {len(found)} passed")
    return int(any(wrapped.get(name) != "passed" for name in plain if plain[name] == "passed"))


def with_wrapped_loaders(source: str) -> str:
    """Return the source with the name DataLoader given to another class once it is imported."""
    imported = [
        node.end_lineno
        for node in ast.parse(source).body
        if isinstance(node, ast.ImportFrom)
        and any((name.asname or name.name) == "DataLoader" for name in node.names)
    ]
    if not imported or imported[-1] is None:
        raise SystemExit("the file does not import a DataLoader")
    lines = source.splitlines()
    return "\n".join([*lines[: imported[-1]], WRAPPED, *lines[imported[-1] :]])


def outcomes(source: str, names: list[str]) -> dict[str, str]:
    """Run the tests; return "passed", "skipped" or "failed: " and why for each."""
    with tempfile.TemporaryDirectory() as folder:
        file, report = Path(folder, "test_dataloader.py"), Path(folder, "report.xml")
        file.write_text(source)
        options = ["--quiet", "--timeout=120", f"--junitxml={report}"]
        options += ["-k", " or ".join(names)] if names else []
        command = [sys.executable, "-m", "pytest", *options, file]
        subprocess.run(command, cwd=folder, capture_output=True, check=False)
        found = {}
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            name = f"{case.get('classname')}.{case.get('name')}"
            found[name.partition(".")[2]] = _outcome(case)
        return found


def _outcome(case: ElementTree.Element) -> str:
    for found in case:
        if found.tag in ("failure", "error"):
            return f"failed: {(found.get('message') or '').splitlines()[0][:150]}"
        if found.tag == "skipped":
            return "skipped"
    return "passed"


if __name__ == "__main__":
    sys.exit(main())
