"""The torch loader, as a user writes it."""

import torch

import pyecho.torch

loader = pyecho.torch.EchoLoader([torch.zeros(3)], 2, batch_size=2, shuffle_buffer=8)
for batch in loader:
    total: torch.Tensor = batch.sum()
numpy_loader: pyecho.EchoLoader = loader
