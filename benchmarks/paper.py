"""Reproduces the experiments of the paper; `python benchmarks/paper.py --help` says which."""

import sys

from paper.command import main

if __name__ == "__main__":
    sys.exit(main())
