"""Text: a small Transformer learns to predict the next byte of Python's standard library."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from paper.data import fingerprint, read_windows, text_files
from paper.models import BYTES, ByteTransformer
from paper.workload import Batch, Workload

LENGTH = 32
TRAINED_ON = 8192
HELD_OUT = 256


class Text(Workload):
    """An example is a piece of a file: `LENGTH` bytes and, for each, the byte after it."""

    name = "text"
    held_out_unit = "nats per byte"
    target = 2.0
    expected_fresh = 12_000
    quality_budget = 12_288
    seconds_per_row = 0.0007
    batch_size = 32
    rate = 0.002
    average_decay = 0.98
    tested_every = 20

    def __init__(self, folder: Path | None) -> None:
        train, held_out = text_files(folder)
        self.arrays = {"text": read_windows(train, LENGTH + 1, TRAINED_ON, seed=0)}
        test = read_windows(held_out, LENGTH + 1, HELD_OUT, seed=0)
        self._test = torch.split(torch.from_numpy(test), 64)
        self.data = fingerprint(self.arrays["text"], test)

    def network(self) -> nn.Module:
        """Return the Transformer."""
        return ByteTransformer(LENGTH)

    def optimizer(self, network: nn.Module, rate: float) -> torch.optim.Optimizer:
        """Return Adam."""
        return torch.optim.Adam(network.parameters(), lr=rate, betas=(0.9, 0.99))

    def loss(self, network: nn.Module, batch: Batch) -> torch.Tensor:
        """Return the cross-entropy."""
        return _nats(network, batch["text"])

    def held_out(self, network: nn.Module) -> float:
        """Return the cross-entropy of the held-out pieces."""
        return float(torch.stack([_nats(network, text) for text in self._test]).mean())


def _nats(network: nn.Module, text: torch.Tensor) -> torch.Tensor:
    text = text.long()
    return functional.cross_entropy(network(text[:, :-1]).reshape(-1, BYTES), text[:, 1:].flatten())
