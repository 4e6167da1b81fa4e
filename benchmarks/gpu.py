"""Measures pyecho on a GPU; see `python benchmarks/gpu.py --help`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from gpu.command import main

if __name__ == "__main__":
    sys.exit(main())
