"""Patches of volumes, echoed one by one."""

import torch
from monai.data import CacheDataset, DataLoader
from monai.transforms import Compose, EnsureChannelFirstd, RandSpatialCropSamplesd

from pyecho.torch import EchoLoader

volumes = [{"image": torch.rand(16, 16, 16), "label": number % 2} for number in range(12)]
crops = Compose(
    [
        EnsureChannelFirstd("image", channel_dim="no_channel"),
        RandSpatialCropSamplesd("image", roi_size=8, num_samples=4, random_size=False),
    ]
)
source = DataLoader(CacheDataset(volumes, crops, progress=False), batch_size=3, shuffle=True)
# Four crops of each volume: a batch of the source has 12 rows, which its length does not tell.
loader = EchoLoader(source, 2, batch_size=8, unbatch=True, shuffle_buffer=24, steps_per_epoch=12)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(512, 2))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
rows = 0
for batch in loader:
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(batch["image"]), batch["label"]).backward()
    optimizer.step()
    rows += len(batch["label"])
assert rows == 96
