"""Makes the registry of sources importable."""

import sys
from pathlib import Path

import pytest

for module in ("hypothesis", "polars", "pyarrow", "torch"):
    pytest.importorskip(module)

sys.path.insert(0, str(Path(__file__).parent))
