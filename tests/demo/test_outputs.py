import os
import re

import pytest

from pyecho.demo.errors import DemoError
from pyecho.demo.outputs import Output, check_outputs, write_outputs


def test_paths_that_can_be_written_pass_and_checking_creates_nothing(tmp_path):
    check_outputs([Output("--output", tmp_path / "x.png"), Output("--json", tmp_path / "x.json")])
    assert list(tmp_path.iterdir()) == []


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
    output = Output("--json", tmp_path / path)
    if problem is None:  # no new file is made
        output.check()
        return
    with pytest.raises(DemoError, match=f"^--json {re.escape(str(tmp_path / path))}.*{problem}"):
        output.check()


def test_one_file_under_two_names_is_reported(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    outputs = [Output("--output", tmp_path / "x"), Output("--json", tmp_path / "link" / "x")]
    with pytest.raises(DemoError, match="--output and --json need files of their own"):
        check_outputs(outputs)


def test_a_failure_leaves_the_other_results_in_place(tmp_path):
    written = []

    def fail(path):
        raise OSError(28, "No space left on device")

    numbers, figure = Output("--json", tmp_path / "x"), Output("--output", tmp_path / "y")
    with pytest.raises(DemoError, match=r"--json .*x \(No space left on device\).*free space"):
        write_outputs([(numbers, fail), (figure, written.append)])
    assert written == [tmp_path / "y"]
