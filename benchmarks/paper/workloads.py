"""The training workloads: a data set, a network, and the held-out target."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from paper.data import fingerprint, read_fashion, text_windows
from paper.networks import ByteTransformer, residual_net

Batch = dict[str, torch.Tensor]


class Workload:
    """A data set in memory and the network that learns from it.

    The measure on held-out data is one for which lower is better.
    """

    held_out_unit: str
    target: float
    batch_size: int
    """Used in all figures except that of batch sizes."""
    rate: float
    """The learning rate at which the search of every condition begins."""
    average_decay: float
    """Decay of the running average of the weights. Tests use that average."""
    tested_every: int
    """Steps."""
    expected_fresh: int
    """Approximate need of the baseline to the target, for giving up."""
    quality_budget: int
    """Fresh examples of the runs that compare the quality reached."""
    augmented = False
    arrays: dict[str, np.ndarray[Any, Any]]
    data: str
    """A hash of the data."""

    def orders(self, seed: int) -> Iterator[int]:
        """Yield the positions of all passes, one pass after the other, without end."""
        examples = len(next(iter(self.arrays.values())))
        epoch = 0
        while True:
            yield from np.random.default_rng([seed, epoch]).permutation(examples)
            epoch += 1

    def batches(self, size: int, seed: int) -> Iterator[Batch]:
        """Yield fresh batches without end; a pass over the data ends anywhere in a batch."""
        orders = self.orders(seed)
        while True:
            chosen = np.fromiter(orders, np.int64, size)
            yield {name: torch.from_numpy(array[chosen]) for name, array in self.arrays.items()}

    def augment(self, batch: Batch, rng: np.random.Generator) -> Batch:
        """Change every example in its own way, in place."""
        return batch


class Fashion(Workload):
    """Fashion-MNIST: a small residual net learns ten kinds of clothes.

    Few of the images are used, so that training takes ten passes or so, as in the paper. With small
    batches the data are scarce, not the steps.
    """

    held_out_unit = "test error"
    target = 0.29
    expected_fresh = 11_000
    quality_budget = 8192
    batch_size = 8
    rate = 0.05
    average_decay = 0.99
    tested_every = 50
    augmented = True
    trained_on = 1024

    def __init__(self) -> None:
        images, labels = read_fashion("train")
        self.arrays = {"image": images[: self.trained_on], "label": labels[: self.trained_on]}
        tests, wanted = (array[:1000] for array in read_fashion("t10k"))
        self._tests = torch.split(_as_input(torch.tensor(tests)), 100)
        self._wanted = torch.tensor(wanted)
        self.data = fingerprint(*self.arrays.values(), tests, wanted)

    def augment(self, batch: Batch, rng: np.random.Generator) -> Batch:
        """Shift each image by up to 3/16 of its side, and turn it by up to 25 degrees."""
        image = batch["image"]
        count = len(image)
        angle = np.deg2rad(rng.uniform(-25, 25, count))
        # Coordinates run from -1 to 1, so a shift by this share of the side is twice as long.
        across, down = rng.uniform(-3 / 8, 3 / 8, (2, count))
        cos, sin = np.cos(angle), np.sin(angle)
        motion = np.array([[cos, -sin, across], [sin, cos, down]]).transpose(2, 0, 1)
        grid = functional.affine_grid(
            torch.from_numpy(motion).float(), list(image.shape), align_corners=False
        )
        moved = functional.grid_sample(image.float(), grid, align_corners=False)
        image.copy_(moved.round_())
        return batch

    def network(self) -> nn.Module:
        """Return the residual net."""
        return residual_net(10)

    def optimizer(self, network: nn.Module, rate: float) -> torch.optim.Optimizer:
        """Return SGD with momentum."""
        return torch.optim.SGD(network.parameters(), lr=rate, momentum=0.9, nesterov=True)

    def loss(self, network: nn.Module, batch: Batch) -> torch.Tensor:
        """Return the cross-entropy."""
        return functional.cross_entropy(network(_as_input(batch["image"])), batch["label"])

    def held_out(self, network: nn.Module) -> float:
        """Return the share of test images that are misclassified."""
        guesses = torch.cat([network(images).argmax(1) for images in self._tests])
        return float((guesses != self._wanted).float().mean())


class MoreFashion(Fashion):
    """More images in larger batches, so that the steps are scarce, not the data.

    Then it hardly matters whether the copies of an image differ, and large factors pay.
    """

    target = 0.28
    batch_size = 32
    expected_fresh = 13_500
    rate = 0.1
    average_decay = 0.98
    tested_every = 20
    trained_on = 4096


class Text(Workload):
    """A small Transformer learns to predict the next byte of Python's standard library.

    An example is a piece of a file: 32 bytes and, for each, the byte after it.
    """

    held_out_unit = "nats per byte"
    target = 2.0
    expected_fresh = 12_000
    quality_budget = 12_288
    batch_size = 32
    rate = 0.002
    average_decay = 0.98
    tested_every = 20

    def __init__(self) -> None:
        train, test = text_windows(33, 8192, 256)
        self.arrays = {"text": train}
        self._tests = torch.split(torch.from_numpy(test), 64)
        self.data = fingerprint(train, test)

    def network(self) -> nn.Module:
        """Return the Transformer."""
        return ByteTransformer(32)

    def optimizer(self, network: nn.Module, rate: float) -> torch.optim.Optimizer:
        """Return Adam."""
        return torch.optim.Adam(network.parameters(), lr=rate, betas=(0.9, 0.99))

    def loss(self, network: nn.Module, batch: Batch) -> torch.Tensor:
        """Return the cross-entropy in nats for a byte."""
        text = batch["text"].long()
        return functional.cross_entropy(network(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())

    def held_out(self, network: nn.Module) -> float:
        """Return the cross-entropy of the held-out pieces."""
        losses = [self.loss(network, {"text": text}) for text in self._tests]
        return float(torch.stack(losses).mean())


WORKLOADS: dict[str, type[Any]] = {"fashion": Fashion, "fashion-more": MoreFashion, "text": Text}


@cache
def workload(name: str) -> Any:
    """Return a workload; a process reads its data once."""
    return WORKLOADS[name]()


def _as_input(images: torch.Tensor) -> torch.Tensor:
    return images.float().sub_(73).div_(90)
