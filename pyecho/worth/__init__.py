"""What a repeat is worth beside a fresh example."""

from pyecho.worth.estimate import WorthEstimate
from pyecho.worth.worth import Worth

__all__ = ["Worth", "WorthEstimate"]
