"""Judges a simulation by all invariants."""

from . import backups, holder, starts
from .history import History
from .invariants import INVARIANTS, Violation
from .simulation import Simulation

__all__ = ["backups", "holder", "judge", "starts"]


def judge(simulation: Simulation, names: tuple[str, ...] = ()) -> list[Violation]:
    """All violations, by time; of the named invariants, if some are named."""
    history = History(simulation)
    violations = [
        Violation(one.name, one.anchor, found.at_s, found.text, found.job, found.slot)
        for one in INVARIANTS.values()
        if not names or one.name in names
        for found in one.judge(history)
    ]
    return sorted(violations, key=lambda violation: violation.at_s)
