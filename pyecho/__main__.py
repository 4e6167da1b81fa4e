"""Run ``python -m pyecho``, which is the same as the ``pyecho`` command."""

import sys

from pyecho.tools.cli import main

if __name__ == "__main__":
    sys.exit(main())
