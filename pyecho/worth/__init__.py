"""The worth of a repeat beside a fresh example.

To be read in this order: `worth` (`pyecho.Worth`), `arrival` (losses that come from a device),
`record` (sums of them), `estimate` (what they tell).
"""

from pyecho.worth.estimate import WorthEstimate
from pyecho.worth.worth import Worth

__all__ = ["Worth", "WorthEstimate"]
