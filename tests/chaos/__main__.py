"""``python -m chaos sqlite redis --minutes 2 --seed 7``: run, judge, and write a page for each target."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
