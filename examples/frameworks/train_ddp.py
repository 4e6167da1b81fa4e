"""DistributedDataParallel with torchrun: equally many batches, the same on any number of processes.

    torchrun --nproc-per-node=2 --max-restarts=3 train_ddp.py

Begun anew with 1, 2, 3, 4, 6 or 12 processes, it goes on where the last checkpoint was taken.
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import checkpoint
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from pyecho.torch import EchoLoader
from pyecho.torch.distributed import RunState


def main(folder="ddp-checkpoint", epochs=2):
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    dataset = TensorDataset(torch.randn(240, 8), torch.randint(3, (240,)))
    sampler = DistributedSampler(dataset, shuffle=False)  # rank r has every ranks-th example
    source = DataLoader(dataset, batch_size=8, sampler=sampler)
    loader = EchoLoader(
        source,
        factor=2,
        batch_size=24 // ranks,
        shuffle_buffer=96 // ranks,
        unbatch=True,
        shards=12,
        group="auto",
    )
    model = DistributedDataParallel(torch.nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    done = torch.zeros(2, dtype=torch.int64)  # epochs, steps
    state = {"model": model.module.state_dict(), "data": RunState(loader), "done": done}
    if Path(folder).exists():
        checkpoint.load(state, checkpoint_id=folder)
        model.module.load_state_dict(state["model"])

    while done[0] < int(epochs):
        for inputs, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            done[1] += 1
            if done[1] % 15 == 0:
                saved = f"{folder}-{done[1]}"
                checkpoint.save(state, checkpoint_id=saved)
                if rank == 0:
                    let_point(Path(folder), Path(saved))
                dist.barrier()
        done[0] += 1
    if rank == 0:
        torch.save(model.module.state_dict(), "model.pt")
    # A DDP model that outlives its group may hang: it ends gloo's threads with the GIL they want.
    del model
    dist.destroy_process_group()


def let_point(link, target):
    """Change a link in one step, so that a job that is killed finds the last whole checkpoint."""
    new = Path(f"{link}-link")
    new.unlink(missing_ok=True)
    new.symlink_to(target.name)
    new.replace(link)


if __name__ == "__main__":
    main(*sys.argv[1:])
