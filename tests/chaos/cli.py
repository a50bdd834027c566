"""What is typed to run chaos."""

import argparse
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from .broken import BROKEN
from .checker import Judgement, judge
from .director import Options, run
from .evidence import loaded, saved
from .page import page, summary
from .plan import plan
from .stores import TARGETS, lease_ms_of, target_of


def main(arguments: list[str] | None = None) -> int:
    """0: no violation; 1: some."""
    given = _parsed(arguments)
    if given.plan:
        return _show_plan(given)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # servers are ended, too
    given.out.mkdir(parents=True, exist_ok=True)
    judgements = [_judged(given, Path(kept)) for kept in given.again]
    for target in [] if given.again else given.targets or _installed():
        judgements += [_run(given, target, seed) for seed in given.seed or [1]]
    for judgement in judgements:
        print(summary(judgement))
    return int(any(judgement.violations for judgement in judgements))


def _installed() -> list[str]:
    """The targets whose backends are here; the others are told."""
    here = [target for target in TARGETS if find_spec(f"tenure_{target}")]
    for target in TARGETS:
        if target not in here:
            print(f"tenure-{target} is not installed: no chaos on it", file=sys.stderr)
    return here


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="chaos", description="Harm real instances on a real store, and judge them.")
    parser.add_argument("targets", nargs="*", help=f"all that are installed unless some are named: {' '.join(TARGETS)}")
    parser.add_argument("--minutes", type=float, default=2.0, help="how long each run takes; 2")
    parser.add_argument("--seed", type=int, action="append", help="draws the faults; may be given several times; 1")
    parser.add_argument("--instances", type=int, default=5, choices=range(2, 6), help="fewer on a slow machine; 5")
    parser.add_argument("--out", type=Path, default=Path("chaos-reports"), help="where the pages and evidence go")
    parser.add_argument("--broken", default="", choices=["", "unfenced", *BROKEN], help="break the instances first")
    parser.add_argument("--plan", action="store_true", help="only show what would be done")
    parser.add_argument("--again", nargs="+", default=[], help="judge kept evidence (.json) once more")
    return parser.parse_args(arguments)


def _show_plan(given: argparse.Namespace) -> int:
    for target in given.targets or TARGETS:
        for seed in given.seed or [1]:
            print(f"{target}, seed {seed}")
            found = target_of(target)
            for fault in plan(
                seed, given.minutes, lease_ms_of(found), network="faults" in found.levels and target != "sqlite"
            ):
                print(f"  {fault}")
    return 0


def _run(given: argparse.Namespace, target: str, seed: int) -> Judgement:
    unfenced = given.broken == "unfenced"
    options = Options(
        target=target,
        seed=seed,
        minutes=given.minutes,
        instances=given.instances,
        broken="" if unfenced else given.broken,
        unfenced=unfenced,
    )
    print(f"{target}, seed {seed}, {given.minutes:g} minutes", file=sys.stderr)
    with TemporaryDirectory(prefix="tenure-chaos-") as directory:
        evidence = run(options, Path(directory), lambda text: print(f"  {text}", file=sys.stderr))
    kept = given.out / f"{target}-{seed}.json"
    saved(evidence, kept)
    return _judged(given, kept)


def _judged(given: argparse.Namespace, kept: Path) -> Judgement:
    judgement = judge(loaded(kept))
    written = given.out / f"{kept.stem}.html"
    written.write_text(page(judgement), encoding="utf-8")
    print(f"  {written}", file=sys.stderr)
    return judgement
