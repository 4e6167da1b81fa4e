"""The output of loaders and buffers has not changed since digests.json, bit for bit."""

import json
from functools import partial

import pytest

pytest.importorskip("torch")

from configurations import CONFIGURATIONS, DIGESTS, digest
from delays import dawdling

pytestmark = pytest.mark.filterwarnings("ignore:.*the epoch has no batch")

EXPECTED = json.loads(DIGESTS.read_text())["digests"]


class Iterated:
    """A source that can only be iterated, whose items come late now and then if `late`."""

    def __init__(self, source, *, late=False):
        self._source, self._seconds = source, 0.001 * late

    def __iter__(self):
        return dawdling(self._source, seed=1, most_seconds=self._seconds)


def test_configurations_have_a_digest_each():
    assert list(EXPECTED) == list(CONFIGURATIONS)


@pytest.mark.parametrize("name", CONFIGURATIONS)
@pytest.mark.parametrize(
    ("wrap", "arguments"),
    [(None, {}), (Iterated, {"threads": 0}), (partial(Iterated, late=True), {"threads": 3})],
    ids=["as it is", "consumer", "threads, late"],
)
def test_output_is_the_recorded_one(name, wrap, arguments):
    if not CONFIGURATIONS[name].can_wrap:
        wrap = None
    assert digest(name, wrap=wrap, **arguments) == EXPECTED[name]
