"""Measures pyecho on a GPU; see `python benchmarks/gpu.py --help`."""

import sys

from gpu.command import main

if __name__ == "__main__":
    sys.exit(main())
