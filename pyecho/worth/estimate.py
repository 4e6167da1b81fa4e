"""The worth of a repeat beside a fresh example, estimated from a record of losses.

The loss on examples that were not seen before falls with the number of *effective* examples,

    n = N_0 + rho_1 N_1 + rho_2 N_2 + ...

where N_k counts uses number k so far and rho_k is their worth. How it falls is not known, only
that it does so smoothly: a natural cubic spline in log n. The worths are one of PROFILES: they fade
from use to use, and late ones may do harm. A wrong profile bends the curve wherever the mix of
fresh and repeated uses changes, which no smooth curve follows. So each profile gets the likelihood
of its best curve as a weight, and the weights are the posterior, from which values and intervals
follow. Where the mix does not change, all profiles fit alike, and the interval is wide.

Repeats of the last batches also move the loss at once, since their gradients are alike, and for a
short time. That is no learning, so the share of repeats in the last RECENT batches gets a term of
its own beside the curve.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyecho._core import ConfigError, EchoError
from pyecho.checked import as_float

Floats = NDArray[np.float64]

USES = 64
"""Uses that profiles tell of; later ones are like the last."""


def _profiles() -> tuple[Floats, Floats]:
    """Return worths of uses 1, 2, ... of each profile, and what each weighs beforehand."""
    first, decay, harm = np.meshgrid(
        np.linspace(-0.25, 1.25, 31), [1.0, 0.9, 0.8, 0.65, 0.5, 0.2], [0.0, 0.08, 0.25]
    )
    use = np.arange(USES - 1)
    worths = first.ravel()[:, None] * decay.ravel()[:, None] ** use - harm.ravel()[:, None] * use
    weights = np.where(harm.ravel() == 0, 0.8, 0.1)
    return np.maximum(worths, -0.5), weights / weights.sum()


PROFILES, PRIOR = _profiles()
TOTALS = np.concatenate([np.ones((len(PROFILES), 1)), PROFILES], 1).cumsum(1)
KNOTS = np.linspace(0, 1, 5)
RECENT = 30
"""Batches."""
MOST_VALIDATIONS = 32
"""More validation losses count as so many independent ones."""
PUBLISHED_USES = 4
"""Up to four passes over the data are nearly as good as fresh ones (Muennighoff et al., 2023)."""
MOST_FACTOR = 32
"""No larger factor is proposed."""
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
    """The measurement that is missing if it is not, else empty."""
    generalises: bool
    """False once examples come again (a later pass) and there is no validation loss since.
    Losses are then no longer those of unseen examples, and the estimate is of the first pass."""
    gap: tuple[float, ...]
    """Mean recent loss on uses 1, 2, ... less that on fresh ones; NaN where there was none.
    Negative where the model knows examples by heart."""
    _weights: Floats = field(repr=False)  # of PROFILES; they sum to 1
    _uses: int = field(repr=False)  # the number of the last use that occurred

    @property
    def rho(self) -> tuple[float, ...]:
        """Worth of use 1, 2, ... (as far as there were any) beside a fresh example."""
        return tuple((self._weights @ PROFILES[:, : self._uses]).tolist())

    @property
    def interval(self) -> tuple[tuple[float, float], ...]:
        """The 90% interval of each of `rho`."""
        return tuple(_interval(self._weights, PROFILES[:, use]) for use in range(self._uses))

    def effective(self, factor: float) -> float:
        """Return E(factor): fresh examples that are worth as much as one with all of its uses.

        Raises `ConfigError` if the factor is below 1.
        """
        return float(self._weights @ _effective(factor))

    def effective_interval(self, factor: float) -> tuple[float, float]:
        """Return the 90% interval of `effective`."""
        return _interval(self._weights, _effective(factor))

    def best_factor(self, ratio: float) -> float:
        """Return the factor with the most learning per second, at most R and 32.

        R is the time of a fresh item over that of a use, such as ``loader.stats().ratio``. Up to R
        a use costs no time, so the most learning is the highest E(e). Of factors that do as well
        the least is the best; `EchoLoader.advise` proposes the same. Raises `ConfigError` if R is
        not above 0, and `EchoError` if the worth is not known.
        """
        given, ratio = ratio, as_float(ratio)
        if not ratio > 0:
            raise ConfigError(
                "best_factor needs R, a number above 0, such as loader.stats().ratio once some "
                f"batches have come; got {given!r}"
            )
        if not self.identified:
            raise EchoError(
                f"the best factor is not known: {self.reason}; up to {PUBLISHED_USES} uses are "
                "nearly as good as fresh examples by published curves, so until then pass "
                f"factor={max(1, min(ratio, PUBLISHED_USES)):g}"
            )
        return least_best(self.effective, ratio).factor

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


class Best(NamedTuple):
    """The least factor with the most learning per second, and this speed."""

    factor: float
    speed: float


def least_best(speed: Callable[[float], float], most: float) -> Best:
    """Return the least factor up to `most` with nearly the highest speed."""
    most = min(most, MOST_FACTOR)
    factors = [*np.arange(1, most, 0.1).tolist(), max(1.0, most)]
    tried = [Best(factor, speed(factor)) for factor in factors]
    highest = max(best.speed for best in tried)
    return next(best for best in tried if best.speed > 0.999 * highest)


def _effective(factor: float) -> Floats:
    """Return E(factor) of each profile."""
    given, factor = factor, as_float(factor)
    if not 1 <= factor < math.inf:
        raise ConfigError(
            f"effective needs a factor, a number of at least 1, such as the loader's; got {given!r}"
        )
    whole = min(int(factor), USES)
    most = min(whole, USES - 1)
    return np.asarray(TOTALS[:, whole - 1] + (factor - whole) * (PROFILES[:, most - 1]))


@dataclass(frozen=True)
class Evidence:
    """Mean losses on unseen examples: (T,), with uses by number before each: (T, uses)."""

    seen: Floats
    losses: Floats
    precision: Floats
    """The inverse of the variance of each, up to a factor."""
    most: float = np.inf
    """They count as so many independent ones at most, since the model is not exact."""


def posterior(kinds: Sequence[Evidence], batch: float) -> Floats:
    """Return the weight of each profile, with so many uses in a batch."""
    total = np.sum([_likelihood(evidence, batch) for evidence in kinds], 0)
    weights = PRIOR * np.exp(total - total.max())
    return np.asarray(weights / weights.sum())


def _likelihood(evidence: Evidence, batch: float) -> Floats:
    """Return the log-likelihood of each profile, up to a constant, with so many uses in a batch."""
    seen, losses, precision = evidence.seen, evidence.losses, evidence.precision
    repeats = seen[:, 1:]
    n = seen[:, 0] + PROFILES[:, : repeats.shape[1]] @ repeats.T
    n = np.maximum(n, 0.05 * seen[:, 0])
    log = np.log(n)
    low, high = log.min(1, keepdims=True), log.max(1, keepdims=True)
    curve = _splines((log - low) / np.maximum(high - low, 1e-9))  # all may be taken at one time
    recent = np.broadcast_to(_recent_repeats(seen, RECENT * batch)[:, None], (*log.shape, 1))
    basis = np.concatenate([curve, recent], -1)
    losses = losses - np.average(losses, weights=precision)
    weighted = basis * precision[:, None]
    normal = np.swapaxes(basis, 1, 2) @ weighted
    terms = basis.shape[-1]
    normal += 1e-9 * np.trace(normal, axis1=1, axis2=2)[:, None, None] * np.eye(terms)
    moments = np.swapaxes(weighted, 1, 2) @ losses
    curves = np.linalg.solve(normal, moments[..., None])
    squares = np.maximum((precision * losses**2).sum() - (moments * curves[..., 0]).sum(1), 1e-300)
    best = int(squares.argmin())
    left = np.sqrt(precision) * (losses - basis[best] @ curves[best, :, 0])
    freedom = min(max(_independent(left) - terms - 1, 1.0), evidence.most)
    return np.asarray(-0.5 * freedom * np.log(squares / squares[best]))


def _recent_repeats(seen: Floats, span: float) -> Floats:
    """Return the share of repeats in about the last `span` uses before each row."""
    uses = np.diff(seen, axis=0, prepend=0)
    totals = np.maximum(uses.sum(1), 1e-9)
    shares = np.asarray(uses[:, 1:].sum(1) / totals)
    kept = np.exp(-totals / span)
    for row in range(1, len(shares)):
        shares[row] += kept[row] * (shares[row - 1] - shares[row])
    return shares


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


def _interval(weights: Floats, values: Floats) -> tuple[float, float]:
    """Return the 5% and the 95% quantile of values with these weights."""
    order = values.argsort()
    below = weights[order].cumsum()
    low, high = np.minimum(np.searchsorted(below, [0.05, 0.95]), len(values) - 1)
    return float(values[order[low]]), float(values[order[high]])
