"""Runs the simulation: ``python -m simulation --seeds 1000`` in the directory above, or ``nox -s simulate -- …``."""

import argparse
import sys
import time

from tenure.testing import World

from . import broken, checker, scenario, simulation
from .invariants import INVARIANTS, Violation
from .scenario import TROUBLE_S, Scenario
from .shrink import needed_faults
from .simulation import Simulation
from .trace import Trace

_PROGRESS = 500


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    if options.invariants:
        for one in INVARIANTS.values():
            print(f"{one.name:44} docs/protocol.md#{one.anchor}")
        return 0
    if options.broken is not None:
        return _find_broken(options.broken, options.seeds)
    if options.seed is not None:
        return _replay(_scenario(options.seed, options), options)
    return _run_all(options)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="nox -s simulate --", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000, help="so many scenarios (1000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--seed", type=int, help="run this one again and show its trace")
    parser.add_argument("--only", help="with --seed: these faults alone, by their number: 0,3,7")
    parser.add_argument("--all", action="store_true", help="with --seed: the whole trace")
    parser.add_argument("--job", default="", help="with --seed: the whole trace of this job")
    parser.add_argument("--minutes", type=float, default=TROUBLE_S / 60, help="how long faults come, in virtual time")
    parser.add_argument("--broken", nargs="*", metavar="NAME", help="find the runners that are broken on purpose")
    parser.add_argument("--invariants", action="store_true", help="list what must hold, and say no more")
    return parser.parse_args(arguments)


def _scenario(seed: int, options: argparse.Namespace) -> Scenario:
    made = scenario.make(seed, trouble_s=options.minutes * 60)
    return made.only(map(int, options.only.split(","))) if options.only else made


def _run_all(options: argparse.Namespace) -> int:
    began, virtual_s = time.perf_counter(), 0.0
    for number in range(options.seeds):
        made = _scenario(options.first + number, options)
        ran = simulation.run(made)
        virtual_s += ran.end_s
        if violations := checker.judge(ran):
            kept = needed_faults(made, violations[0].invariant)
            options.only = ",".join(map(str, kept))
            return _replay(made.only(kept), options)
        if (number + 1) % _PROGRESS == 0:
            print(f"{number + 1} seeds without a violation, {_hours(virtual_s, began)}", flush=True)
    last = options.first + options.seeds - 1
    print(f"seeds {options.first} to {last}: no violation in {_hours(virtual_s, began)}")
    return 0


def _hours(virtual_s: float, began: float) -> str:
    return f"{virtual_s / 3600:.1f} virtual hours, {time.perf_counter() - began:.0f} s"


def _replay(made: Scenario, options: argparse.Namespace) -> int:
    ran = simulation.run(made)
    violations = checker.judge(ran)
    print(f"seed {made.seed}: times and slots are seconds since {World(simulation.START).now:%H:%M:%S}")
    for spec in made.specs:
        print(f"  job {spec}")
    print(f"  {made.network}")
    for line in _lines(ran, violations, options):
        print(line)
    for violation in violations:
        print(f"VIOLATION {violation}")
    only = f" --only {options.only}" if options.only else ""
    minutes = f" --minutes {options.minutes:g}" if options.minutes * 60 != TROUBLE_S else ""
    print(f"again: nox -s simulate -- --seed {made.seed}{only}{minutes}")
    return 1 if violations else 0


def _lines(ran: Simulation, violations: list[Violation], options: argparse.Namespace) -> list[str]:
    trace = Trace(ran)
    if options.all or options.job or not violations:
        return list(trace.lines(options.job))
    return list(trace.around(violations[0]))


def _find_broken(names: list[str], seeds: int) -> int:
    chosen = [one for one in broken.BROKEN if not names or one.name in names]
    if unknown := set(names) - {one.name for one in broken.BROKEN}:
        print(f"there is no broken runner {', '.join(sorted(unknown))}; there are:")
        print("\n".join(f"  {one.name}: {one.what}" for one in broken.BROKEN))
        return 2
    print(f"{'broken runner':32} {'found by':44} {'seeds':>5}  what is broken")
    missed = 0
    for one in chosen:
        found = broken.search(one, seeds=seeds)
        missed += found.violation is None
        seen = str(found.seeds) if found.violation else "NONE"
        print(f"{one.name:32} {one.found_by:44} {seen:>5}  {one.what}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
