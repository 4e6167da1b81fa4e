"""Sources that make tensors on the device, such as decoders of images, and tables of Arrow."""

import pytest
import torch
from host_device import WAYS, there

import pyecho.torch
from pyecho.torch import Device


class Elsewhere(torch.Tensor):
    device = torch.device("cuda", 0)


def test_batch_echoing_hands_out_what_is_there(device):
    source = [there(torch.full((2, 5), float(number))) for number in range(23)]
    emitted = list(pyecho.torch.EchoLoader(source, 2, device="cuda:0"))
    assert all(each is source[number // 2] for number, each in enumerate(emitted))


def test_what_is_there_is_converted_as_what_crosses_is(device):
    source = [{"here": torch.ones(2, 5), "there": there(torch.ones(2, 5)), "label": 1}] * 3
    for item in pyecho.torch.EchoLoader(source, 2, device=Device("cuda:0", dtype=torch.float16)):
        assert item["here"].dtype == item["there"].dtype == torch.float16
        assert item["here"].tolist() == item["there"].tolist() == [[1.0] * 5] * 2


@pytest.mark.parametrize("unbatch", [False, True])
@pytest.mark.parametrize(("echo", "name"), [(False, ""), (True, r"item\['image'\]: ")])
def test_example_echoing_of_what_is_there_says_what_to_do(device, echo, name, unbatch):
    source = [{"label": torch.zeros(3), "image": torch.zeros(3).as_subclass(Elsewhere)}]
    options = {"batch_size": 2, "unbatch": unbatch, "device": Device("cuda:0", echo=echo)}
    message = rf"^{name}the source yields a tensor on cuda:0, .*\(\.cpu\(\)\)"
    with pytest.raises(pyecho.ConfigError, match=message):
        next(iter(pyecho.torch.EchoLoader(source, 2, **options)))


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("way", ["batches", "examples", "on the device"])
def test_arrow_tables_go_to_the_device(way):
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"x": range(12), "name": [f"n{x}" for x in range(12)]})
    table = pa.Table.from_batches(table.to_batches(max_chunksize=5))
    loader = pyecho.torch.EchoLoader(table, 2, **WAYS[way])
    found = []
    for batch in loader:
        assert isinstance(batch["x"], torch.Tensor)
        assert list(batch["name"]) == [f"n{x}" for x in batch["x"].tolist()]
        found += batch["x"].tolist()
    assert sorted(found) == sorted([*range(12)] * 2)
