"""One number, what it is compared to, and what it should be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyecho.bench.sampling import Sample


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    measured: Sample
    unit: str
    limit: Sample | None = None
    """What it is compared to, measured in the same rounds."""
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
            "measured": _plain(self.measured),
            "limit_name": self.limit_name,
            "limit": _plain(self.limit),
            "ratio": _plain(self.compared()),
            "target": self.target,
        }


def _plain(sample: Sample | None) -> dict[str, Any] | None:
    if sample is None:
        return None
    return {
        "median": sample.median,
        "min": sample.low,
        "max": sample.high,
        "values": list(sample.values),
    }
