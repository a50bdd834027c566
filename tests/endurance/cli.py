"""What is typed to let instances run for long."""

import argparse
import signal
import sys
from importlib.util import find_spec

from chaos.stores import TARGETS

from .director import Options, Report, endure


def main(arguments: list[str] | None = None) -> int:
    """0: all is flat; 1: something grew."""
    given = _parsed(arguments)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # servers are ended, too
    reports = [_run(given, target) for target in given.targets or _installed()]
    return int(any(report.grows for report in reports))


def _installed() -> list[str]:
    """The targets whose backends are here; the others are told."""
    here = [target for target in TARGETS if find_spec(f"tenure_{target}")]
    for target in TARGETS:
        if target not in here:
            print(f"tenure-{target} is not installed: nothing runs on it", file=sys.stderr)
    return here


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    about = "Run instances on a real store for long, and say which of their measures and the store's grow."
    parser = argparse.ArgumentParser(prog="endurance", description=about)
    parser.add_argument("targets", nargs="*", help=f"all that are installed unless some are named: {' '.join(TARGETS)}")
    parser.add_argument("--minutes", type=float, default=2.0, help="how long on each store, with --runs at most; 2")
    parser.add_argument(
        "--runs", type=int, default=0, help="calls of the backend without a pause, instead of instances"
    )
    parser.add_argument(
        "--reconnects", type=int, default=200, help="how often connections are ended, 1.5 s apart or more; 200"
    )
    parser.add_argument("--instances", type=int, default=2, help="processes that share the job; 2")
    parser.add_argument("--every", default="100ms", help="how often the job is due; 100ms")
    parser.add_argument("--leak", type=int, default=0, metavar="BYTES", help="what each run leaves, to see it found")
    return parser.parse_args(arguments)


def _run(given: argparse.Namespace, target: str) -> Report:
    print(f"{target}, {given.minutes:g} minutes", file=sys.stderr)
    chosen = {name: getattr(given, name) for name in ("runs", "reconnects", "instances", "every", "leak")}
    report = endure(Options(target=target, seconds=given.minutes * 60, **chosen))
    print(report, flush=True)
    return report
