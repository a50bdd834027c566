"""``python -m tenure`` is the command ``tenure``."""

import sys

from tenure.cli import main

if __name__ == "__main__":
    sys.exit(main())
