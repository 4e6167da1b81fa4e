"""The two networks, small enough for one CPU core: a residual one, and a Transformer of bytes."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

WIDTHS = (16, 32, 64)
BYTES = 256
MODEL_WIDTH = 64
HEADS = 4
LAYERS = 2


class Residual(nn.Module):
    """Two convolutions beside an identity; both halve the resolution where the width grows.

    There is no batch normalisation, because copies of an example within a batch would disturb its
    statistics. A scale that starts at zero makes the net trainable without it (De and Smith, 2020).
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        stride = outputs // inputs
        self._first = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1)
        self._second = nn.Conv2d(outputs, outputs, 3, padding=1)
        self._around = nn.Conv2d(inputs, outputs, 1, stride=stride) if stride > 1 else None
        self._scale = nn.Parameter(torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        around = x if self._around is None else self._around(x)
        branch = self._second(functional.relu(self._first(functional.relu(x))))
        scaled: torch.Tensor = self._scale * branch
        return scaled + around


def residual_net(classes: int) -> nn.Module:
    """Return a net for grey images of 28 x 28 pixels; `torch.manual_seed` decides its weights."""
    blocks: list[nn.Module] = []
    width = WIDTHS[0]
    for wider in WIDTHS:
        blocks.append(Residual(width, wider))
        width = wider
    net = nn.Sequential(
        nn.Conv2d(1, WIDTHS[0], 3, stride=2, padding=1),
        *blocks,
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, classes),
    )
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            assert module.bias is not None
            nn.init.zeros_(module.bias)
    return net


class Block(nn.Module):
    """Attention to earlier bytes, then a network for each position; normalised beforehand."""

    def __init__(self) -> None:
        super().__init__()
        self._before_attention = nn.LayerNorm(MODEL_WIDTH)
        self._before_network = nn.LayerNorm(MODEL_WIDTH)
        self._to_heads = nn.Linear(MODEL_WIDTH, 3 * MODEL_WIDTH)
        self._from_heads = nn.Linear(MODEL_WIDTH, MODEL_WIDTH)
        self._network = nn.Sequential(
            nn.Linear(MODEL_WIDTH, 4 * MODEL_WIDTH),
            nn.ReLU(),
            nn.Linear(4 * MODEL_WIDTH, MODEL_WIDTH),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        heads = self._to_heads(self._before_attention(x))
        query, key, value = heads.view(batch, length, 3 * HEADS, -1).transpose(1, 2).chunk(3, 1)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self._from_heads(seen.transpose(1, 2).reshape(batch, length, MODEL_WIDTH))
        thought: torch.Tensor = self._network(self._before_network(x))
        return x + thought


class ByteTransformer(nn.Module):
    """Predicts the next byte of a text; `torch.manual_seed` decides its weights."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self._bytes = nn.Embedding(BYTES, MODEL_WIDTH)
        self._positions = nn.Parameter(torch.empty(length, MODEL_WIDTH))
        self._blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self._last = nn.LayerNorm(MODEL_WIDTH)
        self._to_bytes = nn.Linear(MODEL_WIDTH, BYTES)
        nn.init.normal_(self._positions, std=0.02)
        nn.init.normal_(self._bytes.weight, std=0.02)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self._bytes(text) + self._positions
        logits: torch.Tensor = self._to_bytes(self._last(self._blocks(x)))
        return logits
