"""Sources, and the drivers of a loader: the threads that read the source and make batches."""

import threading

import numpy as np
import pytest

import pyecho

FEEDER = {"threads": 1}
DRIVERS = {
    "in memory": {},
    "consumer": {"threads": 0},
    "feeder": FEEDER,
    "workers": {"threads": 3},
    "augmented": {"augment": lambda batch, rng: batch, "augment_workers": 2},
}
"""By name: arguments of a loader. All but the first read a source that may wait."""

drivers = pytest.mark.parametrize("driver", DRIVERS)
waiting_drivers = pytest.mark.parametrize("driver", list(DRIVERS)[1:])
levels = pytest.mark.parametrize("batch_size", [None, 4])


class Iterated:
    """A source that can be read again, and may wait."""

    def __init__(self, items):
        self.items = items
        self.passes = 0

    def __iter__(self):
        self.passes += 1
        yield from self.items


class Sized(Iterated):
    """A source with a length."""

    def __len__(self):
        return len(self.items)


class GoesOn(Iterated):
    """A source that goes on by a state of its own."""

    at = 0

    def __iter__(self):
        while self.at < len(self.items):
            self.at += 1
            yield self.items[self.at - 1]
        self.at = 0

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


class Blocked:
    """A source that yields some items at once and the rest after it is released."""

    def __init__(self, items, after):
        self.items, self.after = items, after
        self.inside, self.release = threading.Event(), threading.Event()

    def __iter__(self):
        for number, item in enumerate(self.items):
            if number == self.after:
                self.inside.set()
                assert self.release.wait(60)
            yield item


def loader_of(driver, items, factor=2, **arguments):
    """A loader with this driver. Lists and ranges become an `Iterated` unless kept in memory."""
    if isinstance(items, list | range) and driver != "in memory":
        items = Iterated(items)
    return pyecho.EchoLoader(items, factor, **DRIVERS[driver], **arguments)


def flat(batches):
    """Copies of all items of all batches, at either level. Drops the batches one by one."""
    return [item for batch in batches for item in np.atleast_1d(batch).tolist()]


def repeated(items, factor=2):
    """The output without a shuffle buffer."""
    return [item for item in items for _ in range(factor)]


def batch_of(*examples, **arguments):
    """The one batch that these examples make, in order."""
    arguments = {"factor": 1, "batch_size": len(examples), "shuffle_buffer": 0} | arguments
    [batch] = pyecho.EchoLoader(list(examples), **arguments)
    return batch


def length_of(loader):
    """Return len(); None if it cannot be known."""
    try:
        return len(loader)
    except TypeError:
        return None


def pyecho_threads():
    """Return pyecho's living threads: Python lists one for ever whose start Ctrl-C cut short."""
    named = [thread for thread in threading.enumerate() if thread.name.startswith("pyecho")]
    return [thread for thread in named if thread.is_alive()]
