"""SIGINT at random moments of loaders whose batches go to a device."""

import os

import pytest
import torch
from host_device import WAYS
from interrupts import Storm, ended_by_alarm, taken_by

import pyecho.torch

INTERRUPTS = 3000 if os.environ.get("PYECHO_STRESS", "") not in ("", "0") else 8


def rows():
    return [torch.full((30,), number, dtype=torch.uint8) for number in range(40)]


@pytest.mark.filterwarnings("ignore:the consumer keeps batches")
@pytest.mark.parametrize("threads", [None, 0])
@pytest.mark.parametrize("way", WAYS)
def test_a_loader_with_a_device_loses_nothing_in_a_storm_of_interrupts(device, way, threads):
    def make():
        arguments = {"shuffle_buffer": 8, "threads": threads} | WAYS[way]
        return pyecho.torch.EchoLoader(rows(), 3, **arguments)

    def plain(batches):
        return [batch.tolist() for batch in batches]

    with make() as loader:
        whole = [plain(loader) for _ in range(2)]
    with Storm(0) as storm:
        while storm.interrupts < INTERRUPTS:
            with ended_by_alarm(60), make() as loader:
                for expected in whole:
                    assert plain(taken_by(lambda: loader, storm.strikes, most=5)) == expected
