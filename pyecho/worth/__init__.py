"""The worth of a repeat beside a fresh example."""

from pyecho.worth.estimate import WorthEstimate
from pyecho.worth.worth import Worth

__all__ = ["Worth", "WorthEstimate"]
