"""Fabric: shard the source, name the device, and leave the loader out of setup_dataloaders().

Run it with ``fabric run train_fabric.py``, or as it is.
"""

import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

try:
    from lightning.fabric import Fabric
except ImportError:
    from lightning_fabric import Fabric

from pyecho.torch import EchoLoader


def main(checkpoint="fabric.ckpt"):
    fabric = Fabric(accelerator="cpu")
    fabric.launch()
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 3)
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))

    dataset = TensorDataset(torch.randn(96, 8), torch.randint(3, (96,)))
    sampler = DistributedSampler(dataset, fabric.world_size, fabric.global_rank)
    source = DataLoader(dataset, batch_size=8, sampler=sampler)
    loader = EchoLoader(source, 2, batch_size=8, unbatch=True, device=fabric.device)
    for _ in range(2):
        for inputs, labels in loader:
            optimizer.zero_grad()
            fabric.backward(torch.nn.functional.cross_entropy(model(inputs), labels))
            optimizer.step()
        fabric.log_dict(loader.stats().scalars())
    # load() with the same dict goes on in the middle of an epoch
    fabric.save(checkpoint, {"model": model, "optimizer": optimizer, "loader": loader})
    return loader.stats()


if __name__ == "__main__":
    main()
