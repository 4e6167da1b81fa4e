import re

import pytest

from pyecho.tools.arguments import CommandError, check_figure, check_output


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
    with pytest.raises(CommandError, match=r"--output .* needs a suffix .*svg.*: choose"):
        check_figure("--output", tmp_path / name)


def test_format_that_lacks_a_program_is_reported_early(tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("xelatex not found\nmore")

    monkeypatch.setattr(pytest.importorskip("matplotlib.figure").Figure, "savefig", fail)
    with pytest.raises(CommandError, match=r"pgf needs .* \(xelatex not found\): choose"):
        check_figure("--output", tmp_path / "figure.pgf")
