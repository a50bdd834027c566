"""Has the peers found, as PYTHONPATH=tests/benchmarks does where they are run by themselves."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
