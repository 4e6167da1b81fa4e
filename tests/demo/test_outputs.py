import os

import pytest

from pyecho.demo.errors import DemoError
from pyecho.demo.outputs import Output, check_outputs, write_outputs


@pytest.fixture
def denied(monkeypatch):
    """Return a set of paths that must not be written, which holds for root as well."""
    paths = set()
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path not in paths and access(path, mode))
    return paths


def test_checking_creates_nothing(tmp_path):
    check_outputs([Output("--output", tmp_path / "x.png"), Output("--json", tmp_path / "x.json")])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_write_permission_is_named(tmp_path, denied):
    denied.add(tmp_path)
    with pytest.raises(DemoError, match=rf"--json .*have none for {tmp_path}: choose another"):
        Output("--json", tmp_path / "x.json").check()


def test_a_file_without_write_permission_is_named(tmp_path, denied):
    path = tmp_path / "x.json"
    path.touch()
    denied.add(path)
    with pytest.raises(DemoError, match=r"x\.json needs write .*have none for this file: choose"):
        Output("--json", path).check()


def test_an_existing_file_in_a_folder_that_takes_no_new_ones_is_fine(tmp_path, denied):
    path = tmp_path / "x.json"
    path.touch()
    denied.add(tmp_path)
    Output("--json", path).check()


def test_a_file_in_place_of_the_folder_is_reported(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DemoError, match="file is not a folder: create it"):
        Output("--json", tmp_path / "file" / "x.json").check()


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
