"""docs/errors.md names every exception and every status code."""

import re
from pathlib import Path

import pyecho

DOCS = Path(__file__).parents[2] / "docs"


def documented(pattern):
    return set(re.findall(rf"^\| `({pattern})` \|", (DOCS / "errors.md").read_text(), re.MULTILINE))


def test_exceptions_are_documented():
    exported = (getattr(pyecho, name) for name in pyecho.__all__)
    exceptions = {e.__name__ for e in exported if isinstance(e, type) and issubclass(e, Exception)}
    assert documented("[A-Z][A-Za-z]+") == exceptions


def test_status_codes_are_documented():
    header = (Path(pyecho.get_include()) / "pyecho" / "pyecho.h").read_text()
    (statuses,) = re.findall(r"enum pyecho_status \{(.*?)\}", header, re.DOTALL)
    codes = set(re.findall(r"^  (PYECHO_[A-Z_]+) = \d+,", statuses, re.MULTILINE))
    assert len(codes) > 10
    assert documented("PYECHO_[A-Z_]+") == codes
