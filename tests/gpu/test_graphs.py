"""A consumer that captures CUDA graphs while the loader's threads go on."""

from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("capture_program.py")


@pytest.mark.parametrize(
    "way",
    [
        "batches",
        "examples on the host",
        "examples on the device",
        "converted",
        "batches made there",
        "examples made there",
    ],
)
def test_a_capture_and_the_loaders_threads_do_not_disturb_each_other(run, way):
    assert run(PROGRAM, "threads", way) == "right\n"


def test_pinned_batches_that_are_dropped_during_a_capture_come_back(run):
    assert run(PROGRAM, "dropping") == "right\n"


def test_a_wait_in_a_capture_is_an_error_and_not_a_wrong_result(run):
    assert run(PROGRAM, "waiting") == "right\n"
