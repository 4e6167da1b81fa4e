"""A consumer that captures CUDA graphs while the loader's threads go on."""

import pytest
import scripts

pytest.importorskip("torch")

from capturing import WAYS

pytestmark = pytest.mark.usefixtures("gpu")


@pytest.mark.parametrize("way", WAYS)
def test_a_capture_and_the_loaders_threads_do_not_disturb_each_other(way):
    scripts.run(f"import capturing; capturing.while_threads_run({way!r})")


def test_pinned_batches_that_are_dropped_during_a_capture_come_back():
    scripts.run("import capturing; capturing.dropping_pinned_batches()")


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("way", ["batches", "examples on the host", "examples on the device"])
def test_a_batch_asked_for_in_a_capture_is_an_error_and_comes_after_it(way, before):
    scripts.run(f"import capturing; capturing.waiting({way!r}, {before})")
