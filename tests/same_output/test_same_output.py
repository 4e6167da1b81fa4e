"""The output of loaders and buffers has not changed since digests.json, bit for bit."""

import json

import pytest

pytest.importorskip("torch")

from configurations import CONFIGURATIONS, DIGESTS, digest
from delays import dawdling

pytestmark = pytest.mark.filterwarnings("ignore:.*the epoch has no batch")

EXPECTED = json.loads(DIGESTS.read_text())["digests"]
THREADS = [0, 1, 2, 4]


class Iterated:
    """A source that can only be iterated."""

    def __init__(self, source):
        self._source = source

    def __iter__(self):
        yield from self._source


class Late(Iterated):
    """Its items come late now and then."""

    def __iter__(self):
        return dawdling(self._source, seed=1, most_seconds=0.001)


WRAPPABLE = [name for name, made in CONFIGURATIONS.items() if made.can_wrap]


def test_every_configuration_has_a_digest():
    assert list(EXPECTED) == list(CONFIGURATIONS)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_as_it_is(name):
    assert digest(name) == EXPECTED[name]


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_threads(name, threads):
    assert digest(name, threads=threads) == EXPECTED[name]


@pytest.mark.parametrize("wrap", [Iterated, Late])
@pytest.mark.parametrize("name", WRAPPABLE)
def test_sources(name, wrap):
    assert digest(name, wrap=wrap) == EXPECTED[name]
