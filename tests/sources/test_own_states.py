"""Iterators with `get_state` and `set_state`, such as Grain's, go on by their own state.

The machine says what they yield then.
"""

import itertools

from drivers import Iterated
from resuming import StatefulIterator

import pyecho

ITEMS = range(2000)


class Numbers(Iterated):
    def __iter__(self):
        return Counting(self.items)


class Counting(StatefulIterator):
    """Counts what is read; a state is bytes."""

    state_dict = load_state_dict = None
    read = 0

    def __next__(self):
        Counting.read += 1
        return super().__next__()

    def get_state(self):
        return b"%d" % self.place

    def set_state(self, state):
        self.place = int(state)


def test_iterator_with_get_state_reads_nothing_again():
    first, second = (pyecho.EchoLoader(Numbers(ITEMS), 2, batch_size=4) for _ in range(2))
    assert sum(map(len, itertools.islice(first, 9))) == 9 * 4
    state = first.state_dict()
    first.close()
    second.load_state_dict(state)
    Counting.read = 0
    assert sum(map(len, second)) == 2 * len(ITEMS) - 9 * 4
    assert Counting.read == len(ITEMS) - int(state["source"]["state"]) + 1  # with the end
