"""Finds out which faults of a scenario a violation needs."""

from types import SimpleNamespace

from . import checker, simulation
from .scenario import Scenario

_MOST_RUNS = 120


def needed_faults(scenario: Scenario, invariant: str, code: SimpleNamespace | None = None) -> tuple[int, ...]:
    """The places of the faults that a violation needs: halves of the others are left out first, then single ones."""
    kept = tuple(range(len(scenario.faults)))
    size, runs = len(kept) // 2, 0
    while size and runs < _MOST_RUNS:
        start = 0
        while start < len(kept) and runs < _MOST_RUNS:
            fewer = (*kept[:start], *kept[start + size :])
            runs += 1
            if checker.judge(simulation.run(scenario.only(fewer), code), (invariant,)):
                kept = fewer
            else:
                start += size
        size //= 2
    return kept
