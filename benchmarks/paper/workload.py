"""The training workloads: a data set, a network, and the held-out target."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

Batch = dict[str, torch.Tensor]


class Workload(ABC):
    """A data set in memory and the network that learns from it.

    The measure on held-out data is always one for which lower is better.
    """

    name: ClassVar[str]
    held_out_unit: ClassVar[str]
    target: ClassVar[float]
    batch_size: ClassVar[int]
    """Used in all figures except that of batch sizes."""
    rate: ClassVar[float]
    """The learning rate at which the search of every condition begins."""
    average_decay: ClassVar[float]
    """Decay of the running average of the weights. Tests use that average."""
    tested_every: ClassVar[int]
    """Steps."""
    expected_fresh: ClassVar[int]
    """Approximate need of the baseline to the target, for estimates and for giving up."""
    quality_budget: ClassVar[int]
    """Fresh examples of the runs that compare the quality reached."""
    seconds_per_row: ClassVar[float]
    """Time of training on one core, tests included; for estimates."""
    arrays: dict[str, np.ndarray[Any, Any]]
    data: str
    """A hash of the data."""

    @property
    def examples(self) -> int:
        """The number of training examples."""
        return len(next(iter(self.arrays.values())))

    def orders(self, seed: int) -> Iterator[int]:
        """Yield the positions of all passes, one pass after the other, without end.

        That is the order of `pyecho.demo.source.RemoteImages` with the same seed.
        """
        epoch = 0
        while True:
            yield from np.random.default_rng([seed, epoch]).permutation(self.examples)
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

    @property
    def augmented(self) -> bool:
        """True if `augment` does anything."""
        return type(self).augment is not Workload.augment

    @abstractmethod
    def network(self) -> nn.Module:
        """Return a new network, whose weights torch's generator decides."""

    @abstractmethod
    def optimizer(self, network: nn.Module, rate: float) -> torch.optim.Optimizer:
        """Return a new optimizer."""

    @abstractmethod
    def loss(self, network: nn.Module, batch: Batch) -> torch.Tensor:
        """Return the quantity to minimise."""

    @abstractmethod
    def held_out(self, network: nn.Module) -> float:
        """Return the network's measure on the held-out data."""
