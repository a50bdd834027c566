"""Run the model check: ``python -m modelcheck [--big]`` in the directory above."""

import sys
import time

from .checker import Explorer
from .configs import BIG, SMALL
from .model import Model
from .world import Config


def main(configs: dict[str, Config]) -> int:
    faults = 0
    for name, config in configs.items():
        began = time.perf_counter()
        report = Explorer(Model(config)).run()
        faults += report.fault is not None
        print(f"{name}: {report} ({time.perf_counter() - began:.1f} s)", flush=True)
    return min(faults, 1)


if __name__ == "__main__":
    sys.exit(main(BIG if "--big" in sys.argv[1:] else SMALL))
