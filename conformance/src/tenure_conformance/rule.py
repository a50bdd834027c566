"""The registry of rules: what a rule is, and the catalogue of all of them."""

import hashlib
import inspect
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Literal

from tenure_conformance.faults.kit import Power
from tenure_conformance.target import LEVELS, Level, Target

if TYPE_CHECKING:
    from tenure_conformance.bench import Bench

Base = Literal["claim-only", "lease"]
Pace = Literal["quick", "timed", "process", "heavy"]
"""``timed`` rules wait for leases and run side by side, ``process`` ones start processes and run a few at once;
``heavy`` ones take the machine and run alone, last."""

AREAS = {
    "CLM": "claim",
    "TKO": "takeover",
    "LSE": "lease",
    "HBT": "heartbeat",
    "FNC": "fencing",
    "FIN": "finish",
    "REL": "release",
    "OVL": "overlap",
    "LAT": "lateness",
    "ATT": "attempts",
    "ACT": "active",
    "RES": "results",
    "ISO": "isolation",
    "NAM": "names",
    "PRC": "precision",
    "CON": "concurrency",
    "IDM": "ambiguous failure",
    "FLT": "faults",
    "CLK": "clock",
    "CNC": "cancellation",
    "LIF": "lifecycle",
    "BND": "bounds",
    "HNT": "hints",
    "CRD": "cards",
    "CLO": "claim-only",
}
CATALOGUE = Path(__file__).with_name("catalogue.json")

RETIRED: frozenset[str] = frozenset()
"""Ids of rules that are no more; they are never given to others."""

Check = Callable[["Bench"], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One sentence that every backend of a level keeps, and the function that looks whether it does."""

    id: str
    sentence: str
    level: Level
    base: Base
    """The kind of backend that it speaks of."""
    spec: tuple[str, ...]
    """Anchors of the protocol's sentences that it checks."""
    since: str
    pace: Pace
    catches: tuple[str, ...]
    """Broken backends that it catches."""
    check: Check
    needs: Power | None = None
    """What must be possible with the target's store, for rules of level ``faults``."""

    @property
    def area(self) -> str:
        """The id's letters."""
        return self.id[:3]

    def applies(self, target: Target) -> bool:
        """Whether the target declared the rule's level and what it needs, and is of the kind that it speaks of."""
        return self.level in target.levels and self.base in target.levels and self.needs in (None, *target.powers)

    def entry(self) -> dict[str, object]:
        """The rule as the catalogue has it."""
        return {
            "id": self.id,
            "sentence": self.sentence,
            "area": AREAS[self.area],
            "level": self.level,
            "base": self.base,
            "spec": list(self.spec),
            "since": self.since,
            "pace": self.pace,
            "needs": self.needs,
            "catches": list(self.catches),
            "name": self.check.__name__ if inspect.isfunction(self.check) else "",
        }


_rules: dict[str, Rule] = {}


def rule(
    rule_id: str,
    *,
    level: Level,
    spec: str | tuple[str, ...],
    base: Base = "lease",
    since: str = "1.0",
    pace: Pace = "quick",
    catches: tuple[str, ...] = (),
    needs: Power | None = None,
) -> Callable[[Check], Check]:
    """Register a rule: an asynchronous function of a bench whose docstring is the rule, in one sentence."""

    def register(check: Check) -> Check:
        if not re.fullmatch(r"[A-Z]{3}-\d{3}", rule_id) or rule_id[:3] not in AREAS or level not in LEVELS:
            raise ValueError(f"{rule_id}: not the id of a known area, or no level {level!r}")
        if rule_id in _rules or rule_id in RETIRED:
            raise ValueError(f"{rule_id} is taken, or was; ids are never given again")
        _rules[rule_id] = Rule(
            id=rule_id,
            sentence=" ".join((check.__doc__ or "").split()),
            level=level,
            base="claim-only" if level == "claim-only" else base,
            spec=(spec,) if isinstance(spec, str) else spec,
            since=since,
            pace=pace,
            catches=catches,
            check=check,
            needs=needs,
        )
        return check

    return register


@cache
def catalogue() -> tuple[Rule, ...]:
    """Every rule, by area and number; all modules of ``rules`` are imported for it."""
    package = import_module("tenure_conformance.rules")
    for module in iter_modules(package.__path__):
        import_module(f"{package.__name__}.{module.name}")
    areas = list(AREAS)
    return tuple(sorted(_rules.values(), key=lambda rule: (areas.index(rule.area), rule.id)))


def select(globs: tuple[str, ...] = (), levels: tuple[str, ...] = ()) -> tuple[Rule, ...]:
    """The rules whose id fits one of the globs, of these levels; all of them if none is given."""
    return tuple(
        rule
        for rule in catalogue()
        if (not globs or any(fnmatchcase(rule.id, glob.upper()) for glob in globs))
        and (not levels or rule.level in levels)
    )


def catalogue_json() -> str:
    """The catalogue as it is kept beside the rules; a test compares them."""
    return json.dumps([rule.entry() for rule in catalogue()], indent=2, ensure_ascii=False) + "\n"


def rule_set_hash() -> str:
    """Names this very set of rules in certificates."""
    told = [[rule.id, rule.sentence, rule.level, rule.base, rule.needs, rule.since] for rule in catalogue()]
    return hashlib.sha256(json.dumps(told, ensure_ascii=False).encode()).hexdigest()
