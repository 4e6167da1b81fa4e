"""Iterators with `get_state` and `set_state`, such as Grain's, go on by their own state."""

import itertools

import pyecho

ITEMS = 2000


class Numbers:
    """Iterators count what they read; a state is bytes."""

    read = 0

    def __iter__(self):
        return Counting(self)


class Counting:
    def __init__(self, source):
        self.source, self.next = source, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.next == ITEMS:
            raise StopIteration
        self.next += 1
        self.source.read += 1
        return self.next - 1

    def get_state(self):
        return b"%d" % self.next

    def set_state(self, state):
        self.next = int(state)


def test_iterator_with_get_state_goes_on_by_it():
    options = {"batch_size": 4, "shuffle_buffer": 7}
    whole = [batch.tolist() for batch in pyecho.EchoLoader(Numbers(), 2, **options)]
    loader = pyecho.EchoLoader(Numbers(), 2, **options)
    found = [batch.tolist() for batch in itertools.islice(loader, 9)]
    state, source = loader.state_dict(), Numbers()
    other = pyecho.EchoLoader(source, 2, **options)
    other.load_state_dict(state)
    assert found + [batch.tolist() for batch in other] == whole
    assert source.read == ITEMS - int(state["source"]["state"])
