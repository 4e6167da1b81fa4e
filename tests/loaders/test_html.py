"""Pictures of a loader in a notebook."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

import pyecho


def texts(loader):
    """Return the numbers of the table, and what the picture says, from well-formed HTML."""
    shown = loader._repr_html_()

    class Words(HTMLParser):
        words = ()

        def handle_data(self, data):
            self.words = (*self.words, data)

    table = Words()
    table.feed(re.sub("<svg.*</svg>", "", shown, flags=re.DOTALL))
    drawing = ElementTree.fromstring(re.search("<svg.*</svg>", shown, flags=re.DOTALL)[0])
    assert all(
        float(each.get("width")) >= 0 for each in drawing.iter() if each.tag.endswith("rect")
    )
    words = [each.text for each in drawing.iter() if each.tag.endswith("text")]
    title, *cells = table.words
    return title, dict(zip(cells[::2], cells[1::2], strict=True)), words


def test_before_the_first_batch_nothing_is_known_and_nothing_is_read():
    def source():
        raise AssertionError
        yield

    title, numbers, words = texts(pyecho.EchoLoader(source(), 3, batch_size=8))
    assert "factor=3" in title
    assert numbers["R = t_up / t_down"] == numbers["effective factor"] == "unknown yet"
    assert {"generator", "0 examples read", "holds 80", "0% full", "0 batches"} <= set(words)


def test_after_an_epoch_it_shows_the_statistics():
    loader = pyecho.EchoLoader(np.zeros((16, 3)), 4, batch_size=8)
    for _ in loader:
        pass
    _, numbers, words = texts(loader)
    assert (numbers["effective factor"], numbers["fresh share"]) == ("4.00", "25%")
    assert {"ndarray", "16 examples read", "8 batches", "25% fresh", "4 uses"} <= set(words)


@pytest.mark.parametrize(
    ("factor", "options", "shown"),
    [(1.5, {}, "1.5 uses"), (pyecho.Adaptive(8), {"batch_size": 2}, "up to 8 uses")],
)
def test_factors_are_shown_as_they_are(factor, options, shown):
    assert shown in texts(pyecho.EchoLoader(range(8), factor, **options))[2]


def test_names_cannot_break_the_page():
    source = type("<script>&'\"" + "x" * 50, (list,), {})([1, 2])
    title, _, words = texts(pyecho.EchoLoader(source))
    assert "<script>" in title
    assert any(word.startswith("<script>&'\"x") and len(word) == 28 for word in words)
