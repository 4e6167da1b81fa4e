"""Pictures of a loader in a notebook."""

from html import escape

import numpy as np
import pytest

import pyecho


def test_html_before_the_first_batch_knows_and_reads_nothing():
    def source():
        raise AssertionError
        yield

    shown = pyecho.EchoLoader(source(), 3, batch_size=8)._repr_html_()
    assert "factor=3" in shown
    assert "nothing was handed out yet" in shown
    assert "0 examples read" in shown


@pytest.mark.parametrize(
    ("factor", "options", "shown"),
    [(4, {}, "4 uses"), (1.5, {}, "1.5 uses"), (pyecho.Adaptive(8), {"batch_size": 2}, "up to 8")],
)
def test_factors_and_counts_are_shown_after_an_epoch(factor, options, shown):
    loader = pyecho.EchoLoader(np.zeros((16, 3)), factor, **options)
    for _ in loader:
        pass
    assert shown in loader._repr_html_()
    assert f"{loader.stats().fresh_share:.0%}" in loader._repr_html_()


def test_names_cannot_break_the_page():
    name = "<script>&'\""
    shown = pyecho.EchoLoader(type(name, (list,), {})([1, 2]))._repr_html_()
    assert escape(name) in shown
    assert "<script>" not in shown
