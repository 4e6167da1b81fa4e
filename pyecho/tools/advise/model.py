"""Predicts a pipeline at each echo factor, and says what to change about it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from pyecho.tools.advise.remedies import Facts, Remedy, remedies
from pyecho.tools.advise.times import FACTORS, SLACK, Times


@dataclass(frozen=True)
class Prediction:
    """Speed to expect at one echo factor, once the pool is full."""

    factor: float
    steps_per_second: float
    idle_share: float | None
    """Share of the time in which the accelerator waits; None without a step function."""
    seconds: float
    """Time for `Advice.steps` steps."""

    @property
    def busy_share(self) -> float:
        """Share of the time in which the accelerator works; 1 without a step function."""
        return 1 - (self.idle_share or 0)


@dataclass(frozen=True)
class Advice:
    """Result of `EchoLoader.advise` and ``pyecho advise``; ``print`` shows it in short."""

    factor: float
    """The echo factor of the loader."""
    steps: int
    """The number of steps that `Prediction.seconds` is for."""
    times: Times
    full_factor: float | None
    """The least factor, R or 1, at which the accelerator is full; None if no factor fills it, or
    without a step function."""
    limit: str
    """Limit of the loader at its factor: source, augmentation, gather, upload or consumer."""
    facts: Facts
    """Measurements beside the times."""
    remedies: tuple[Remedy, ...]
    """Changes, the one that gains most first; one that changes nothing if none gains."""
    predictions: tuple[Prediction, ...] = field(repr=False)
    """One for each of the factors 1, 2, 3, 4, 5, 8."""

    def __str__(self) -> str:
        """Return the times, the limit, and a line for each remedy."""
        times = self.times
        parts = {"t_up": times.upstream, "t_down": times.downstream}
        parts |= {"augment": times.augmentation, "gather": times.gather, "upload": times.upload}
        shown = ", ".join(
            f"{name} = {1e3 * value:.2f} ms" for name, value in parts.items() if value > 5e-6
        )
        if self.full_factor is not None:
            full = f"The accelerator is full from e = {self.full_factor:.1f} on."
        elif times.downstream:
            full = "No factor fills the accelerator."
        else:
            full = "Without a step function, this is what the loader can deliver at most."
        lines = [
            f"A batch takes {shown}. {full}",
            f"At e = {self.factor:.3g} the limit is the {self.limit}.",
            *map(str, self.remedies),
        ]
        if self.facts.unmeasured:
            lines.append(f"Workers were not measured: {self.facts.unmeasured}.")
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain JSON types."""
        return asdict(self)


def advice_on(times: Times, factor: float, steps: int, facts: Facts) -> Advice:
    """Return the advice that follows from these times for a loader with this factor."""
    parts = times.parts(factor)
    limit = max(parts, key=parts.__getitem__)
    never = times.serial or not 0 < times.cycle <= SLACK * times.downstream
    full = None if never else max(1.0, times.ratio)
    return Advice(
        factor=factor,
        steps=steps,
        times=times,
        full_factor=full,
        limit=limit,
        facts=facts,
        remedies=remedies(times, factor, limit, facts),
        predictions=tuple(_prediction(times, at, steps) for at in FACTORS),
    )


def _prediction(times: Times, factor: float, steps: int) -> Prediction:
    period = times.period(factor)
    idle = max(0.0, 1 - times.downstream / period) if times.downstream else None
    return Prediction(factor, 1 / period, idle, steps * period)
