"""Readable numbers."""

from __future__ import annotations

from pyecho.bench.sampling import Sample


def number(value: float) -> str:
    """Return a number with three significant digits, but with all digits before the point."""
    if value == 0:
        return "0"
    digits = 0
    while abs(value) < 100 * 10**-digits and digits < 4:
        digits += 1
    return f"{value:,.{digits}f}"


def spread(sample: Sample | None, unit: str = "") -> str:
    """Return "median unit [lowest, highest]"."""
    if sample is None:
        return ""
    unit = f" {unit}" if unit else ""
    if sample.low == sample.high:
        return f"{number(sample.median)}{unit}"
    return f"{number(sample.median)}{unit} [{number(sample.low)}, {number(sample.high)}]"
