"""Experiments on the worth of repeats; `python benchmarks/worth.py --help` lists them."""

import sys

from worth.command import main

if __name__ == "__main__":
    sys.exit(main())
