"""Measures pyecho beside the tools a user would pick; `python benchmarks/peers.py --help`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from peers.command import main

if __name__ == "__main__":
    sys.exit(main())
