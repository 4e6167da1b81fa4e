"""Pictures of a loader in a notebook."""

from html.parser import HTMLParser

import pytest

import pyecho


def texts(loader):
    """Return the title, the table as a dict, and the words of the picture, from balanced HTML."""

    class Words(HTMLParser):
        def __init__(self):
            super().__init__()
            self.words, self.open = [], []

        def handle_starttag(self, tag, attributes):
            if tag != "br":
                self.open.append(tag)
            if tag == "progress":
                assert 0 <= float(dict(attributes)["value"]) <= 1

        def handle_endtag(self, tag):
            assert self.open.pop() == tag

        def handle_data(self, data):
            self.words.append((self.open[-1], data))

    found = Words()
    found.feed(loader._repr_html_())
    assert found.open == []
    title = found.words[0][1]
    cells = [text for tag, text in found.words if tag in ("th", "td")]
    picture = [text for tag, text in found.words if tag in ("div", "b")]
    return title, dict(zip(cells[::2], cells[1::2], strict=True)), picture


def test_before_the_first_batch_nothing_is_known_and_nothing_is_read():
    def source():
        raise AssertionError
        yield

    title, numbers, words = texts(pyecho.EchoLoader(source(), 3, batch_size=8))
    assert "factor=3" in title
    assert numbers["R = t_up / t_down"] == numbers["effective factor"] == "unknown yet"
    assert {"generator", "0 examples read", "holds 80", "0% full", "0 batches"} <= set(words)


@pytest.mark.parametrize(
    ("factor", "options", "shown"),
    [(1.5, {}, "1.5 uses"), (pyecho.Adaptive(8), {"batch_size": 2}, "up to 8 uses")],
)
def test_factors_are_shown_as_they_are(factor, options, shown):
    assert shown in texts(pyecho.EchoLoader(range(8), factor, **options))[2]


def test_names_cannot_break_the_page():
    name = "<script>&'\""
    title, _, words = texts(pyecho.EchoLoader(type(name, (list,), {})([1, 2])))
    assert name in title
    assert name in words
