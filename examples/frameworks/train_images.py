"""Images of a folder (NFS, or a mounted bucket), DistributedDataParallel, any number of processes.

    torchrun --nproc-per-node=8 train_images.py /nfs/train          # eight GPUs, over NCCL
    python train_images.py pictures                                 # one process, a GPU or none

DIR has a folder for each class. Begun anew with as many processes, it goes on where it was.
"""

import os
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from PIL import Image
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from pyecho import Field, ops
from pyecho.torch import EchoLoader
from pyecho.torch.distributed import RunState

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Images:
    """The whole data, on every rank: the loader deals indices to ranks and workers."""

    def __init__(self, folder):
        found = Path(folder).glob("*/*")
        self.files = sorted(path for path in found if not path.name.startswith("."))
        if not self.files:
            raise SystemExit(f"no images in {folder}: it needs a folder for each class")
        names = sorted({path.parent.name for path in self.files})
        self.classes = {name: number for number, name in enumerate(names)}

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        path = self.files[index]
        pixels = np.asarray(Image.open(path).convert("RGB"))
        return {"image": pixels, "label": self.classes[path.parent.name]}


def network(classes):
    """Return a toy: your own goes here."""
    features = nn.Sequential(nn.Conv2d(3, 16, 7, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(4))
    return nn.Sequential(features, nn.Flatten(), nn.Linear(256, classes))


def main(folder, checkpoint="images.pt", epochs=90, factor=3, batch_size=256, workers=8):
    if "RANK" in os.environ:  # torchrun
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank = dist.get_rank() if dist.is_initialized() else 0
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(device)
    torch.manual_seed(0)
    images = Images(folder)
    loader = EchoLoader(
        images,
        factor,
        batch_size=batch_size,  # of each rank
        shuffle=True,
        num_workers=workers,  # of each rank: cores / GPUs
        fields={"image": Field((None, None, 3), "uint8", max_bytes=16 << 20)},
        ops={
            "image": [
                ops.RandomResizedCrop(224),
                ops.RandomFlip(1),
                ops.Normalize(MEAN, STD),
                ops.ToCHW(),
            ]
        },
        group="auto",
        device=device if device.type == "cuda" else None,
    )
    model = network(len(images.classes)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = RunState(loader)
    epochs = max(1, round(epochs / factor))  # as many steps as without echo
    done = 0
    if Path(checkpoint).exists():
        saved = torch.load(checkpoint, weights_only=True, map_location=device)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        run.load_state_dict(saved["data"])
        done = saved["done"]
    parallel = DistributedDataParallel(model) if dist.is_initialized() else model
    for epoch in range(done, epochs):
        for batch in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(parallel(batch["image"]), batch["label"])
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f}", flush=True)
            saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            saved |= {"data": run.state_dict(), "done": epoch + 1}
            torch.save(saved, f"{checkpoint}-new")
            Path(f"{checkpoint}-new").replace(checkpoint)
    del parallel  # a DDP model that outlives its group may hang
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
