"""Reproduces the experiments of the paper; `python benchmarks/paper.py --help` says which."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from paper.command import main

if __name__ == "__main__":
    sys.exit(main())
