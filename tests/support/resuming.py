"""Loaders that are saved and go on in another one, and sources for them."""

import pickle
from itertools import pairwise

import members
import numpy as np
from drivers import Iterated

import pyecho

END = "end"


def example(item):
    """An example from which every byte tells where it comes from."""
    return {"row": np.full(5, item, np.int32), "name": f"item {item}"}


def columns(start, end):
    """The examples of a range, as a batch."""
    return {
        "row": np.repeat(np.arange(start, end, dtype=np.int32)[:, None], 5, axis=1),
        "name": [f"item {item}" for item in range(start, end)],
    }


class Indexed:
    """A map-style dataset that counts what is read of it."""

    def __init__(self, items):
        self.items = items
        self.reads = 0

    def __len__(self):
        return self.items

    def __getitem__(self, index):
        self.reads += 1
        return example(range(self.items)[index])


class Stateful:
    """Yields items in batches of its own order, other ones in every pass: only its state tells.

    Like torchdata's StatefulDataLoader, it goes on in the middle of a pass with the first iter()
    after a state was loaded, and its state may be taken while it is iterated.
    """

    def __init__(self, items):
        self.items = items
        self.yielded = 0  # in all passes
        self.in_pass = None  # yielded in this one; None: it has ended
        self.loaded = False

    def __iter__(self):
        self.in_pass = self.in_pass if self.loaded and self.in_pass is not None else 0
        self.loaded = False
        while self.in_pass < self.items:
            self.in_pass += 1
            self.yielded += 1
            yield self.item(self.yielded)
        self.in_pass = None

    def item(self, number):
        return example(number * 7919 % 1009)

    def state_dict(self):
        return {"yielded": self.yielded, "in_pass": self.in_pass}

    def load_state_dict(self, state):
        self.yielded, self.in_pass, self.loaded = state["yielded"], state["in_pass"], True


class StatefulBatches(Stateful):
    def item(self, number):
        return columns(number * 3, number * 3 + number % 3)  # of 0 to 2 rows


class StaysAtItsEnd(Stateful):
    """The state of its end means the end, until it is told another epoch (as with Hugging Face's).

    Its state may be asked for only before a state is loaded or once it is iterated again, as with
    torchdata's StatefulDataLoader.
    """

    epoch = at = 0

    def set_epoch(self, epoch):
        self.at = self.at if epoch == self.epoch else 0
        self.epoch = epoch

    def __iter__(self):
        self.loaded = False
        while self.at < self.items:
            self.at += 1
            yield self.item(self.at)

    def state_dict(self):
        assert not self.loaded
        return {"epoch": self.epoch, "at": self.at}

    def load_state_dict(self, state):
        self.epoch, self.at, self.loaded = state["epoch"], state["at"], True


class StatefulIterators(Iterated):
    """Only its iterators have a state."""

    def __iter__(self):
        return StatefulIterator(self.items)


class StatefulIterator:
    """Weak references cannot name it."""

    __slots__ = ("items", "place")

    def __init__(self, items):
        self.items, self.place = items, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.place == len(self.items):
            raise StopIteration
        self.place += 1
        return self.items[self.place - 1]

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self.place = state["place"]


def cut(items):
    """The examples as batches of uneven sizes, some of them empty."""
    ends = sorted([*range(0, items, 7), *range(7, items, 14), items, items])
    return [columns(*each) for each in pairwise(ends)]


def examples(items):
    return list(map(example, range(items)))


SOURCES = {
    "list": examples,
    "arrays": lambda items: (columns(0, items)["row"], np.arange(items)),
    "indexed": Indexed,
    "iterated": lambda items: Iterated(examples(items)),
    "one shot": lambda items: map(example, range(items)),
    "stateful": Stateful,
    "stateful iterators": lambda items: StatefulIterators(examples(items)),
    "cut": lambda items: Iterated(cut(items)),
}


def noisy(batch, rng):
    """Add a number of the use's own."""
    return batch, rng.integers(2**62)


def plain(emission):
    """Return a batch and its info as plain values."""
    batch, info = emission
    return repr(members.plain(batch)), info.source_index.tolist(), info.use.tolist()


class Consumer:
    """Takes emissions and ends of iterations one by one, from one loader and then another."""

    def __init__(self, loader):
        self.loader = loader
        self.batches = None

    def next(self):
        if self.batches is None:
            self.batches = iter(self.loader)
        try:
            return plain(next(self.batches))
        except StopIteration:
            self.batches = None
            return END

    def take(self, count):
        return [self.next() for _ in range(count)]

    def take_all(self, iterations):
        """Everything up to that many ends."""
        taken = []
        while iterations > 0:
            taken.append(self.next())
            iterations -= taken[-1] == END
        return taken

    def moved_to(self, loader, **arguments):
        """Close the loader, and go on with this one, by way of a file."""
        state = pickle.dumps(self.loader.state_dict(**arguments))
        self.loader.close()
        loader.load_state_dict(pickle.loads(state))
        return Consumer(loader)


def loader_of(form, items, **arguments):
    source = SOURCES[form](items)
    return pyecho.EchoLoader(source, unbatch=form == "cut", with_info=True, **arguments)
