"""Measures pyecho beside the tools a user would pick; `python benchmarks/peers.py --help`."""

import sys

from peers.command import main

if __name__ == "__main__":
    sys.exit(main())
