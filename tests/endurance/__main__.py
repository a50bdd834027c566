"""``python -m endurance sqlite redis --minutes 2``: run, measure, and say what grew."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
