"""Arguments that several commands share. Needs nothing but the standard library."""

from __future__ import annotations

import argparse


def positive_int(text: str) -> int:
    """Return a whole number of at least 1; the type of an argument."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)
