"""Fashion-MNIST: a small residual net learns ten kinds of clothes."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from paper.augment import shift_and_rotate
from paper.data import fingerprint, read_fashion
from paper.models import residual_net
from paper.workload import Batch, Workload

CLASSES = 10
HELD_OUT = 1000
MOMENTUM = 0.9


class Fashion(Workload):
    """Few of the images are used, so that training takes ten passes or so, as in the paper.

    With small batches the data are scarce, not the steps.
    """

    name = "fashion"
    held_out_unit = "test error"
    target = 0.29
    expected_fresh = 11_000
    quality_budget = 8192
    seconds_per_row = 0.001
    batch_size = 8
    rate = 0.05
    average_decay = 0.99
    tested_every = 50
    trained_on: ClassVar[int] = 1024

    def __init__(self, folder: Path) -> None:
        images, labels = read_fashion(folder, "train")
        self.arrays = {"image": images[: self.trained_on], "label": labels[: self.trained_on]}
        test_images, test_labels = read_fashion(folder, "t10k")
        test_images, test_labels = test_images[:HELD_OUT], test_labels[:HELD_OUT]
        self._test = torch.split(_as_input(torch.tensor(test_images)), 100)
        self._test_labels = torch.tensor(test_labels)
        self.data = fingerprint(*self.arrays.values(), test_images, test_labels)

    def augment(self, batch: Batch, rng: np.random.Generator) -> Batch:
        """Shift and rotate."""
        return shift_and_rotate(batch, rng)

    def network(self) -> nn.Module:
        """Return the residual net."""
        return residual_net(CLASSES)

    def optimizer(self, network: nn.Module, rate: float) -> torch.optim.Optimizer:
        """Return SGD with momentum."""
        return torch.optim.SGD(network.parameters(), lr=rate, momentum=MOMENTUM, nesterov=True)

    def loss(self, network: nn.Module, batch: Batch) -> torch.Tensor:
        """Return the cross-entropy."""
        return functional.cross_entropy(network(_as_input(batch["image"])), batch["label"])

    def held_out(self, network: nn.Module) -> float:
        """Return the share of test images that are misclassified."""
        guesses = torch.cat([network(images).argmax(1) for images in self._test])
        return float((guesses != self._test_labels).float().mean())


class MoreFashion(Fashion):
    """More images in larger batches, so that the steps are scarce, not the data.

    Then it hardly matters whether the copies of an image differ, and large factors pay.
    """

    name = "fashion-more"
    target = 0.28
    batch_size = 32
    expected_fresh = 13_500
    seconds_per_row = 0.00055
    rate = 0.1
    average_decay = 0.98
    tested_every = 20
    trained_on = 4096


def _as_input(images: torch.Tensor) -> torch.Tensor:
    return images.float().sub_(73).div_(90)
