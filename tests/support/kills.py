"""Kills random workers while a loader runs. Every item keeps its uses."""

import collections
import os
import random
import signal
import threading
import time
from typing import Any

import numpy as np
from worked import Sized, Slow, workers_of

import pyecho

ITEMS = 300


def check(batch: Any) -> None:
    """Check that every row is of its item, and whole."""
    for row, index in enumerate(batch["index"].tolist()):
        if isinstance(batch["x"], pyecho.Ragged):
            item = Sized()[index]
            np.testing.assert_array_equal(batch["x"].row(row), item["x"])
            length = item["wide"].shape[1]
            assert (batch["wide"].values[row, :, :length] == index).all()
        else:
            assert (batch["x"][row] == index).all()


class SlowSized(Sized, Slow):
    """Both."""


def killed(kills: int, seed: int = 0, *, sized: bool = False) -> int:
    """Return how many workers were killed while epochs ran; raise if an item has other uses.

    `sized`: items have any size.
    """
    rng, done, over = random.Random(seed), 0, threading.Event()

    def kill() -> None:
        nonlocal done
        read = 0
        while not over.is_set() and done < kills:
            time.sleep(rng.random() * 0.05)
            workers = workers_of(loader)
            if len(workers) < 2 or loader.stats().read < read:
                continue  # a second death of an item's workers would be its fault
            read = loader.stats().read + ITEMS  # by then the items that were lost are made
            try:
                os.kill(rng.choice(workers), signal.SIGKILL)
                done += 1
            except ProcessLookupError:
                pass  # it is gone already

    options = {"batch_size": 16, "shuffle": True, "num_workers": 4}
    dataset = SlowSized(ITEMS) if sized else Slow(ITEMS)
    fields = Sized.fields if sized else None
    with pyecho.EchoLoader(dataset, 2, fields=fields, **options) as loader:
        killer = threading.Thread(target=kill)
        killer.start()
        try:
            while done < kills:
                uses = collections.Counter()
                for batch in loader:
                    check(batch)
                    uses.update(batch["index"].tolist())
                assert uses == dict.fromkeys(range(ITEMS), 2)
        finally:
            over.set()
            killer.join()
    return done
