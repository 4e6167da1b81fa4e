"""Batches of timm's loader, echoed by example."""

import timm
import torch
from timm.data import create_loader
from torchvision.datasets import FakeData

from pyecho.torch import EchoLoader

images = FakeData(64, image_size=(3, 32, 32), num_classes=4)
source = create_loader(
    images,
    input_size=(3, 32, 32),
    batch_size=16,
    is_training=True,
    num_workers=0,
    use_prefetcher=False,
    use_multi_epochs_loader=True,
)
loader = EchoLoader(source, 2, batch_size=16, unbatch=True, shuffle_buffer=32)
model = timm.create_model("resnet18", num_classes=4)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for _ in range(2):
    steps = 0
    for inputs, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        steps += 1
    assert steps == len(loader) == 8
