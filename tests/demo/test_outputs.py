import os
import re

import pytest

from pyecho.tools.arguments import CommandError, check_figure, check_output


@pytest.mark.parametrize(
    ("path", "denied", "problem"),
    [
        ("new.json", ".", "have none for .*: choose another"),
        ("old.json", "old.json", "have none for this file: choose"),
        ("old.json/x.json", None, "old.json is not a folder: create it"),
        ("missing/x.json", None, "missing is not a folder: create it"),
        (".", None, "must be a file, but it is a folder"),
        ("n" * 300, None, "File name too long"),
        ("old.json", ".", None),
        ("new.json", None, None),
    ],
)
def test_a_path_that_cannot_be_written_is_named_with_its_option(
    tmp_path, monkeypatch, path, denied, problem
):
    (tmp_path / "old.json").touch()
    access = os.access

    def without_permission(path, mode):  # holds for root as well
        refused = denied is not None and path == tmp_path / denied and mode & os.W_OK
        return not refused and access(path, mode)

    monkeypatch.setattr(os, "access", without_permission)
    if problem is None:  # no new file is made
        check_output("--json", tmp_path / path)
        assert sorted(tmp_path.iterdir()) == [tmp_path / "old.json"]
        return
    with pytest.raises(CommandError, match=f"^--json {re.escape(str(tmp_path / path))}.*{problem}"):
        check_output("--json", tmp_path / path)


@pytest.mark.parametrize("name", ["figure", "figure.docx"])
def test_a_format_that_is_unknown_is_reported_early(tmp_path, name):
    with pytest.raises(CommandError, match=r"--output .* needs a suffix .*: choose from .*svg"):
        check_figure("--output", tmp_path / name)


def test_a_format_that_lacks_a_program_is_reported_early(tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("xelatex not found\nmore")

    monkeypatch.setattr(pytest.importorskip("matplotlib.figure").Figure, "savefig", fail)
    with pytest.raises(CommandError, match=r"pgf, which .* \(xelatex not found\): choose another"):
        check_figure("--output", tmp_path / "figure.pgf")
