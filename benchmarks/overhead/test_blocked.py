"""The processor time of a blocked side."""

import contextlib
import threading
import time

import numpy as np
import pytest

import pyecho
from pyecho.bench.row import Row
from pyecho.bench.sampling import Sample

SECONDS = 1.0


def consumer_waits(buffer):
    def take():
        with contextlib.suppress(pyecho.Closed):
            list(buffer)

    waiting = threading.Thread(target=take)
    waiting.start()
    return waiting


def producer_waits(buffer):
    def fill():
        with contextlib.suppress(pyecho.Closed):
            while True:
                buffer.put(np.zeros(3072, np.uint8))

    waiting = threading.Thread(target=fill)
    waiting.start()
    return waiting


@pytest.mark.parametrize("waits", [consumer_waits, producer_waits])
def test_processor_time_while_blocked(waits, measured, rounds):
    def measure(_):
        shares = []
        for _round in range(rounds):
            buffer = pyecho.EchoBuffer(
                pyecho.Field((3072,), np.uint8), batch_size=64, capacity=256, threads=1
            )
            waiting = waits(buffer)
            time.sleep(0.2)  # until all threads sleep
            before, began = time.process_time(), time.perf_counter()
            time.sleep(SECONDS)
            shares.append(100 * (time.process_time() - before) / (time.perf_counter() - began))
            buffer.stop()
            waiting.join()
        name = waits.__name__.replace("_", " ")
        return [Row(f"{name}", Sample(tuple(shares)), "% of a core", target="<= 1")]

    assert measured("Blocked", measure)
