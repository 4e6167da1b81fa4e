"""Rows that hold one value each, so that a torn one shows."""

import torch


def values_of(batch):
    """Return the value of each row, on the batch's device; -1 where elements differ."""
    same = (batch == batch[:, :1]).all(dim=1)
    return torch.where(same, batch[:, 0].long(), -1)
