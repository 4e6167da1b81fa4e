"""A measured number, its limit and its target, and how numbers are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyecho.bench.sampling import Sample


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    measured: Sample
    unit: str
    limit: Sample | None = None
    """The number to compare with, measured in the same rounds."""
    limit_name: str = ""
    ratio: Sample | None = None
    """Of the rounds; measured over limit where nothing else is given."""
    target: str = ""

    def compared(self) -> Sample | None:
        """Return the ratio to the limit."""
        if self.ratio is not None or self.limit is None:
            return self.ratio
        return self.measured / self.limit

    def as_json(self) -> dict[str, Any]:
        """Return everything in plain types."""
        return {
            "what": self.what,
            "unit": self.unit,
            "measured": self.measured.as_json(),
            "limit_name": self.limit_name,
            "limit": self.limit and self.limit.as_json(),
            "ratio": (ratio := self.compared()) and ratio.as_json(),
            "target": self.target,
        }


def pooled(runs: Sequence[Row]) -> Row:
    """Return one row with the medians of several runs; a single one as it is, with its rounds."""
    if len(runs) == 1:
        return runs[0]
    return replace(
        runs[0],
        measured=Sample(tuple(row.measured.median for row in runs)),
        limit=_medians([row.limit for row in runs]),
        ratio=_medians([row.compared() for row in runs]),
    )


def _medians(samples: Sequence[Sample | None]) -> Sample | None:
    medians = tuple(sample.median for sample in samples if sample is not None)
    return Sample(medians) if medians else None


def number(value: float) -> str:
    """Return a number with three significant digits, but with all digits before the point."""
    if value == 0:
        return "0"
    digits = sum(abs(value) < least for least in (100, 10, 1, 0.1))
    return f"{value:,.{digits}f}"


def spread(sample: Sample | None, unit: str = "") -> str:
    """Return "median unit [lowest, highest]"."""
    if sample is None:
        return ""
    unit = f" {unit}" if unit else ""
    if sample.low == sample.high:
        return f"{number(sample.median)}{unit}"
    return f"{number(sample.median)}{unit} [{number(sample.low)}, {number(sample.high)}]"
