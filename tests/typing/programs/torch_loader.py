"""The torch loader, as a user writes it."""

import torch

import pyecho.torch

loader = pyecho.torch.EchoLoader([torch.zeros(3)], 2, batch_size=2, shuffle_buffer=8)
for batch in loader:
    total: torch.Tensor = batch.sum()
numpy_loader: pyecho.EchoLoader = loader
there = pyecho.torch.Device("cuda:0", echo=True, dtype=torch.bfloat16, max_bytes=8 << 30)
pyecho.torch.EchoLoader([torch.zeros(3)], 2, batch_size=2, device=there)
