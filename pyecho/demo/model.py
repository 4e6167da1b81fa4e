"""A small convolutional network for small images."""

from __future__ import annotations

import torch
from torch import nn

_WIDTH = 24


def convolutional_net(shape: tuple[int, int, int], classes: int, seed: int) -> nn.Module:
    """Build the network with the initial weights that `seed` decides.

    Parameters
    ----------
    shape
        Channels, height and width of an image; height and width are multiples of four.
    classes
        How many there are.
    seed
        The same seed gives the same weights.
    """
    torch.manual_seed(seed)
    channels, height, width = shape
    return nn.Sequential(
        *_block(channels, _WIDTH),
        *_block(_WIDTH, 2 * _WIDTH),
        nn.Flatten(),
        nn.Linear(2 * _WIDTH * (height // 4) * (width // 4), classes),
    )


def _block(inputs: int, outputs: int) -> list[nn.Module]:
    """Two convolutions, then half the resolution."""
    return [
        _convolution(inputs, outputs),
        nn.ReLU(),
        _convolution(outputs, outputs),
        nn.ReLU(),
        nn.MaxPool2d(2),
    ]


def _convolution(inputs: int, outputs: int) -> nn.Conv2d:
    """Start with weights that keep the scale of the signal, so that learning begins at once."""
    layer = nn.Conv2d(inputs, outputs, 3, padding=1)
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return layer
