"""Lightning Fabric: shards, setup_dataloaders, save and load. Needs requirements/lightning.txt."""

import pytest
import torch
from ranks import run_ranks
from torch.utils.data import DataLoader

try:
    from lightning.fabric import Fabric
except ImportError:
    Fabric = pytest.importorskip("lightning_fabric").Fabric

from pyecho.torch import EchoLoader

pytestmark = pytest.mark.filterwarnings("default")


def make_loader():
    return EchoLoader(torch.arange(40), 2, batch_size=8)


def batches_of(loader):
    return [batch.tolist() for batch in loader]


def test_setup_dataloaders_takes_the_dataset_of_a_loader():
    fabric = Fabric(accelerator="cpu")
    loader = fabric.setup_dataloaders(DataLoader(make_loader().as_dataset(), batch_size=None))
    expected = make_loader()
    assert len(loader) == len(expected)
    for _ in range(2):
        assert batches_of(loader) == batches_of(expected)


PROGRAM = """
import json, sys, torch
try:
    from lightning.fabric import Fabric
except ImportError:
    from lightning_fabric import Fabric
from pyecho import CheckpointError
from pyecho.torch import EchoLoader
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
fabric.launch()

def make():
    numbers = torch.arange(50)
    sampler = DistributedSampler(numbers, fabric.world_size, fabric.global_rank)
    source = DataLoader(numbers, batch_size=4, sampler=sampler)
    return EchoLoader(source, 2, batch_size=4, unbatch=True)

loader = make()
list(map(torch.clone, loader))
batches = iter(loader)
seen = [next(batches).tolist() for _ in range(7)]
fabric.save(sys.argv[1], {"loader": loader})
own = fabric.broadcast(loader.state_dict(payload=True))
rest = [batch.tolist() for batch in batches]
loader = make()
fabric.load(sys.argv[1], {"loader": loader})
resumed = [batch.tolist() for batch in loader]
try:
    make().load_state_dict(own)
    error = None
except CheckpointError as raised:
    error = str(raised)
found = {"rank": fabric.global_rank, "seen": seen, "rest": rest, "resumed": resumed}
print(json.dumps(found | {"error": error}))
"""


def test_checkpoint_serves_all_ranks_and_the_items_of_another_rank_are_refused(tmp_path):
    first, second = run_ranks(PROGRAM, tmp_path / "checkpoint")
    for rank in (first, second):
        assert len(rank["rest"]) == 6
        assert rank["resumed"] == rank["rest"]
    assert first["seen"] != second["seen"]
    assert first["error"] is None
    assert "that of rank 0, and this is rank 1" in second["error"]
