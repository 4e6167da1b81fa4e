"""How much a repeat is worth beside a fresh example, estimated from a record of losses.

The loss on examples that were not seen before falls with the number of *effective* examples,

    n = N_0 + rho_1 N_1 + rho_2 N_2 + ...

where N_k counts uses number k so far and rho_k is their worth. How it falls is not known, only
that it does so smoothly: a natural cubic spline in log n. The worths are rho_k = rho_1 d^(k - 1). A
wrong worth bends the curve wherever the mix of fresh and repeated uses changes, which no smooth
curve follows. So each pair (rho_1, d) of a grid gets the weight of its best curve, and the weights
are the posterior of the worths, from which values and intervals follow. Where the mix does not
change, all pairs fit alike, and the interval is as wide as the grid.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FIRST = np.linspace(-0.25, 1.25, 46)
DECAYS = np.array([1.0, 0.9, 0.8, 0.65, 0.5, 0.3, 0.0])
KNOTS = np.linspace(0, 1, 5)
LEAST_BINS = 24
"""Fewer bins tell nothing."""
WIDEST = 0.8
"""The widest 90% interval of a repeat's mean worth that counts as knowing it."""


@dataclass(frozen=True)
class WorthEstimate:
    """Worth of repeats, as far as it is known. Made by `Worth.estimate`."""

    identified: bool
    """True if the worth is known well enough to act upon."""
    reason: str
    """What is missing if it is not, else empty."""
    generalises: bool
    """False once examples come again (a later pass) and there is no validation loss since: losses
    are no longer those of unseen examples, and the estimate is that of the first pass."""
    gap: tuple[float, ...]
    """Mean recent loss on uses 1, 2, ... less that on fresh ones; NaN where there was none.
    Negative where the model knows examples by heart."""
    _grid: Floats = field(repr=False)  # the weight of each pair of FIRST and DECAYS; sums to 1
    _uses: int = field(repr=False)  # the number of the last use that occurred

    @property
    def rho(self) -> tuple[float, ...]:
        """Worth of use 1, 2, ... (as far as there were any) beside a fresh example."""
        return tuple(float((self._grid * each).sum()) for each in self._worths())

    @property
    def interval(self) -> tuple[tuple[float, float], ...]:
        """The 90% interval of each of `rho`."""
        return tuple(_interval(self._grid, each) for each in self._worths())

    def effective(self, factor: float) -> float:
        """Return E(factor): fresh examples that are worth as much as one with all of its uses."""
        return float((self._grid * effective_of(factor)).sum())

    def effective_interval(self, factor: float) -> tuple[float, float]:
        """Return the 90% interval of `effective`."""
        return _interval(self._grid, effective_of(factor))

    def __str__(self) -> str:
        """Return a few lines for a person."""
        lines = [
            f"use {use}: worth {worth:.2f} [{low:.2f}, {high:.2f}] of a fresh example"
            for use, (worth, (low, high)) in enumerate(zip(self.rho, self.interval, strict=True), 1)
        ]
        if not self.identified:
            lines = [f"not known: {self.reason}"]
        if not self.generalises:
            lines.append("examples came again, so this is the first pass's; see Worth.validation()")
        return "\n".join(lines)

    def _worths(self) -> list[Floats]:
        return [FIRST[:, None] * DECAYS ** (use - 1) for use in range(1, self._uses + 1)]


def effective_of(factor: float) -> Floats:
    """Return E(factor) for each pair of the grid."""
    whole = int(factor)
    worth = np.zeros((len(FIRST), len(DECAYS)))
    for use in range(1, whole + (factor > whole)):
        worth += min(1.0, factor - use) * FIRST[:, None] * DECAYS ** (use - 1)
    return np.asarray(1 + worth)


def posterior(seen: Floats, losses: Floats, precision: Floats) -> Floats:
    """Return the weight of each pair of the grid.

    Parameters
    ----------
    seen
        Uses by number before each loss, (T, uses).
    losses, precision
        (T,): mean losses on unseen examples, and the inverse of their variance up to a factor.
    """
    use = np.arange(seen.shape[1] - 1)
    repeats = np.stack([seen[:, 1:] @ decay**use for decay in DECAYS])  # (D, T)
    n = seen[:, 0] + FIRST[:, None, None] * repeats  # (F, D, T)
    n = np.maximum(n, 0.05 * seen[:, 0]).reshape(-1, len(losses))
    log = np.log(n)
    low, high = log.min(1, keepdims=True), log.max(1, keepdims=True)
    basis = _splines((log - low) / (high - low))
    losses = losses - np.average(losses, weights=precision)
    weighted = basis * precision[:, None]
    normal = np.swapaxes(basis, 1, 2) @ weighted
    normal += 1e-9 * np.trace(normal, axis1=1, axis2=2)[:, None, None] * np.eye(len(KNOTS))
    moments = np.swapaxes(weighted, 1, 2) @ losses
    curves = np.linalg.solve(normal, moments[..., None])
    squares = np.maximum((precision * losses**2).sum() - (moments * curves[..., 0]).sum(1), 1e-300)
    best = int(squares.argmin())
    left = np.sqrt(precision) * (losses - basis[best] @ curves[best, :, 0])
    freedom = _independent(left) - len(KNOTS) - 2
    weights = np.exp(-0.5 * max(freedom, 1.0) * np.log(squares / squares[best]))
    return np.asarray((weights / weights.sum()).reshape(len(FIRST), len(DECAYS)))


def _splines(at: Floats) -> Floats:
    """Return natural cubic splines at points from 0 to 1, with one more axis for them."""
    cubes = np.maximum(at[..., None] - KNOTS, 0) ** 3
    slopes = (cubes[..., :-1] - cubes[..., -1:]) / (KNOTS[-1] - KNOTS[:-1])
    return np.concatenate(
        [np.ones_like(at)[..., None], at[..., None], slopes[..., :-1] - slopes[..., -1:]], -1
    )


def _independent(residuals: Floats) -> float:
    """Return how many independent residuals say as much as these, which follow each other."""
    centred = residuals - residuals.mean()
    alike = float((centred[1:] * centred[:-1]).sum() / max((centred**2).sum(), 1e-300))
    alike = min(max(alike, 0.0), 0.95)
    return len(residuals) * (1 - alike) / (1 + alike)


def _interval(grid: Floats, values: Floats) -> tuple[float, float]:
    """Return the 5% and the 95% quantile of values with these weights."""
    order = values.ravel().argsort()
    below = grid.ravel()[order].cumsum()
    low, high = np.searchsorted(below, [0.05, 0.95])
    ordered = values.ravel()[order]
    return float(ordered[low]), float(ordered[min(high, len(ordered) - 1)])
