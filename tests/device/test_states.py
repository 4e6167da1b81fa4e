"""Loaders whose batches go to a device are saved and go on."""

import pickle

import pytest
import torch
from host_device import WAYS

import pyecho.torch

SOURCE = [{"row": torch.full((3,), float(n)), "number": n, "name": str(n)} for n in range(23)]


def plain(emission):
    batch, info = emission
    return batch["row"].tolist(), list(batch["number"]), info.source_index.tolist()


@pytest.mark.parametrize("way", ["examples", "augmented"])
def test_another_loader_goes_on(device, way):
    def new_loader():
        options = {"factor": 2.5, "batch_size": 4, "with_info": True, **WAYS[way]}
        return pyecho.torch.EchoLoader(SOURCE, device="cuda:0", memory="pageable", **options)

    whole = [plain(each) for each in new_loader()]
    for stop in (0, 1, 9, len(whole)):
        loader, resumed = new_loader(), new_loader()
        batches = iter(loader)
        assert [plain(next(batches)) for _ in range(stop)] == whole[:stop]
        state = pickle.dumps(loader.state_dict(payload=False))
        loader.close()
        resumed.load_state_dict(pickle.loads(state))
        assert [plain(each) for each in resumed] == whole[stop:]
        resumed.close()
