"""Has the stores of tests/chaos found, as PYTHONPATH=tests does where this is run by itself."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
