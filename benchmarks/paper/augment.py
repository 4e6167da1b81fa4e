"""Random shifts and rotations, applied to every use of an image."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional

from paper.workload import Batch

MAX_DEGREES = 25.0
MAX_SHIFT = 3 / 16


def shift_and_rotate(batch: Batch, rng: np.random.Generator) -> Batch:
    """Move every image of a batch a little, each in its own way, in place.

    Writing in place is allowed: a batch of echoed examples is private to the consumer.
    """
    image = batch["image"]
    count = len(image)
    angle = np.deg2rad(rng.uniform(-MAX_DEGREES, MAX_DEGREES, count))
    # Coordinates run from -1 to 1, so a shift by this share of the side is twice as long.
    across, down = rng.uniform(-2 * MAX_SHIFT, 2 * MAX_SHIFT, (2, count))
    cos, sin = np.cos(angle), np.sin(angle)
    motion = np.array([[cos, -sin, across], [sin, cos, down]])
    grid = functional.affine_grid(
        torch.from_numpy(motion.transpose(2, 0, 1)).float(), list(image.shape), align_corners=False
    )
    moved = functional.grid_sample(image.float(), grid, align_corners=False)
    image.copy_(moved.round_())
    return batch
