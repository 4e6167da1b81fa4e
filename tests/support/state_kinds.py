"""States of all kinds, how they are loaded, and what comes next."""

import importlib.util
import json
from functools import cache, partial

import numpy as np
from resuming import Consumer, Stateful, example, loader_of, noisy

import pyecho
from pyecho.state.loaded import digest

TORCH = importlib.util.find_spec("torch") is not None


class Careful(Stateful):
    """Checks its own part of a state."""

    def load_state_dict(self, state):
        kinds = {"yielded": (int,), "in_pass": (int, type(None))}
        if type(state) is not dict or any(
            name not in state or type(state[name]) not in kinds[name] for name in kinds
        ):
            raise pyecho.CheckpointError("the source was not there")
        super().load_state_dict(state)


class Loaders:
    """States of loaders in the middle of an epoch, and what comes next."""

    refusals = (pyecho.CheckpointError,)

    def __init__(self, make, *, payload=True, before=3):
        self.make = make
        consumer = Consumer(make())
        consumer.take(before)
        self.state = consumer.loader.state_dict(payload=payload)
        self.rest = consumer.take(9)
        consumer.loader.close()

    def load(self, state):
        loader = self.make()
        try:
            loader.load_state_dict(state)
        except BaseException:
            loader.close()
            raise
        return loader

    def take(self, loader):
        with loader:
            return Consumer(loader).take(9)

    def pass_by(self, loader):
        """Take without a look at the items, which may be anything."""
        with loader:
            batches = iter(loader)
            for _ in range(9):
                next(batches, None)

    def sign(self, state):
        """Make the digest right."""
        state["digest"] = digest(state)


class Runs(Loaders):
    """`RunState`: the state is text."""

    def load(self, state):
        from pyecho.torch.distributed import RunState

        loader = self.make()
        try:
            RunState(loader).load_state_dict({"run": json.dumps(texted(state))})
        except BaseException:
            loader.close()
            raise
        return loader

    def sign(self, state):
        from pyecho.torch.distributed import _state_of

        same = _state_of(json.dumps(texted(state)))
        super().sign(same)
        state["digest"] = same["digest"]


def is_small(value):
    return type(value) is np.ndarray and value.nbytes < 2**20 and not value.dtype.hasobject


def texted(value, depth=0):
    """Return what JSON can hold of a state."""
    if type(value) is dict and depth < 8:
        return {key: texted(each, depth + 1) for key, each in value.items() if type(key) is str}
    if (type(value) is list or is_small(value)) and depth < 8:
        return [
            texted(each, depth + 1) for each in (value if type(value) is list else value.tolist())
        ]
    plain = type(value) in (bool, float, str, type(None)) or (
        type(value) is int and value.bit_length() < 99
    )
    return value if plain else type(value).__name__


class Buffers(Loaders):
    """States of an `EchoBuffer`."""

    def __init__(self):
        buffer = self.make()
        for item in range(3):
            buffer.put(example(item))
        self.state = buffer.state_dict()
        self.rest = self.take(buffer)

    def make(self):
        return pyecho.EchoBuffer(pyecho.spec_of(example(0)), 2.5, batch_size=2, shuffle_buffer=3)

    def take(self, buffer):
        buffer.close()
        return [batch["row"].tolist() for batch in buffer]

    pass_by = take


class Worths:
    """States of a `Worth`."""

    refusals = (pyecho.CheckpointError,)

    def __init__(self):
        worth, rng = pyecho.Worth(), np.random.default_rng(0)
        for step in range(40):
            use = rng.integers(0, 3, 8)
            info = pyecho.EchoInfo(np.arange(step * 8, step * 8 + 8), use.astype(np.int32))
            worth.observe(rng.gamma(2, 1, 8), info)
            worth.validation(1 / (step + 1))
        self.state, self.rest = worth.state_dict(), None

    def load(self, state):
        worth = pyecho.Worth()
        worth.load_state_dict(state)
        return worth

    def take(self, worth):
        worth.observe([1.0, 2.0], pyecho.EchoInfo(np.arange(2), np.zeros(2, np.int32)))
        worth.estimate()
        worth.merge(self.load(self.state))
        self.load(worth.state_dict())

    pass_by = take

    def sign(self, state):
        pass


class Logs(Worths):
    """Logs of an adaptive factor, of epochs that are replayed."""

    refusals = (pyecho.CheckpointError, pyecho.ConfigError)

    def __init__(self):
        loader = self.loader(pyecho.Adaptive(4))
        self.take(loader)
        self.state, self.rest = {0: loader.stats().log[0].tolist()}, None

    def loader(self, factor):
        return pyecho.EchoLoader(np.arange(40), factor, batch_size=4, shuffle_buffer=8)

    def load(self, state):
        return self.loader(pyecho.Adaptive(4).replay(state))

    def take(self, loader):
        with loader:
            assert len({item for batch in loader for item in batch.tolist()}) == 40

    pass_by = take


def ragged():
    source = [{"tokens": np.arange(item % 5)} for item in range(11)]
    fields = {"tokens": pyecho.Field((None,), "int64", max_bytes=80)}
    return pyecho.EchoLoader(source, 2, batch_size=3, fields=fields, with_info=True)


def data_loader():
    import torch

    source = torch.utils.data.DataLoader(range(23), batch_size=2, shuffle=True)
    torch.manual_seed(3)
    return pyecho.torch.EchoLoader(source, 2, with_info=True)


def adaptive():
    factor = pyecho.Adaptive(3, replay={0: [8, *[3] * 11, 0, 0, 0]})
    return loader_of("list", 40, factor=factor, batch_size=3, shuffle_buffer=8)


LOADERS = {
    "examples": partial(loader_of, "list", 11, factor=2.5, batch_size=3),
    "batches": partial(loader_of, "list", 11, factor=3, shuffle_buffer=5),
    "augmented": partial(loader_of, "list", 11, factor=2, batch_size=4, augment=noisy),
    "unique": partial(
        loader_of, "list", 11, factor=3, batch_size=4, unique_in_batch=True, epochs=2
    ),
    "endless": partial(loader_of, "list", 11, factor=2, batch_size=4, steps_per_epoch=5),
    "sharded": partial(loader_of, "arrays", 12, factor=2, batch_size=4, shards=2),
    "split": partial(loader_of, "cut", 20, factor=2, batch_size=4),
    "stateful": lambda: pyecho.EchoLoader(Careful(20), 2, batch_size=4, with_info=True),
    "ragged": ragged,
    "adaptive": adaptive,
}
KINDS = {name: partial(Loaders, make) for name, make in LOADERS.items()}
KINDS |= {
    f"{name}, small": partial(KINDS[name], payload=False)
    for name in LOADERS
    if name not in ("stateful", "adaptive")  # without items these go on only where they were
}
KINDS |= {
    "before the first batch": partial(Loaders, LOADERS["stateful"], before=0),
    "buffer": Buffers,
    "worth": Worths,
    "log": Logs,
}
if TORCH:
    KINDS |= {
        "data loader": partial(Loaders, data_loader),
        "run": partial(Runs, LOADERS["sharded"], payload=False),
    }
kind_of = cache(lambda name: KINDS[name]())
