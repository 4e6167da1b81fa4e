"""Makes the table of pipelines importable."""

import sys
from pathlib import Path

import pytest

for module in ("pyarrow", "torch", "torchdata", "tqdm"):
    pytest.importorskip(module)

sys.path.insert(0, str(Path(__file__).parent))
