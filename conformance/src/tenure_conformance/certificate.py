"""The certificate: what was found, in a canonical form that is hashed, and apart from it when and where."""

import hashlib
import json
import os
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from tenure_conformance.rule import Rule, catalogue, rule_set_hash
from tenure_conformance.target import LEVELS, Target
from tenure_conformance.verdict import OUTCOMES, Verdict

FORMAT = 1

Document = dict[str, Any]
"""A certificate as JSON has it: ``claims`` and their ``digest``, and ``run``."""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What the verdicts amount to; ``code`` is the command's exit code."""

    code: int
    sentence: str

    @property
    def certified(self) -> bool:
        """Whether they make a certificate."""
        return self.code == 0


def conclude(outcomes: Mapping[str, str], *, filtered: bool) -> Conclusion:
    """0 certified, 1 a rule failed, 2 not certified: something is missing."""
    counted = Counter(outcomes.values())
    if counted["fail"]:
        return Conclusion(1, f"not certified: {_count(counted['fail'], 'rule')} failed")
    if not any(outcome != "not-applicable" for outcome in outcomes.values()):
        return Conclusion(2, "not certified: no rule was run, which is an error")
    lacking = [f"{_count(counted[kind], 'rule')} {kind}" for kind in ("inconclusive", "waived") if counted[kind]]
    if filtered:
        lacking.append("only some of the rules were run")
    if lacking:
        return Conclusion(2, f"not certified: {', '.join(lacking)}")
    return Conclusion(0, f"certified: {counted['pass']} of {counted['pass']} rules pass")


def write(
    target: Target,
    rules: Sequence[Rule],
    verdicts: Sequence[Verdict],
    *,
    seed: int,
    filtered: bool,
    seconds: float,
    now: datetime | None = None,
) -> Document:
    """The certificate of a run."""
    outcomes = {verdict.rule: verdict.outcome for verdict in verdicts}
    claims: Document = {
        "format": FORMAT,
        "suite": version("tenure-conformance"),
        "rules": rule_set_hash(),
        "target": target.name,
        "reference": target.reference or target.name,
        "distribution": target.distribution,
        "version": target.version(),
        "store": target.store(),
        "levels": [level for level in LEVELS if level in target.levels],
        "powers": sorted(target.powers),
        "capabilities": asdict(target.capabilities),
        "timing": asdict(target.timing),
        "limits": asdict(target.limits),
        "seed": seed,
        "filtered": filtered,
        "certified": conclude(outcomes, filtered=filtered).certified,
        "verdicts": dict(sorted(outcomes.items())),
        "level_verdicts": _by_level(rules, outcomes),
    }
    run: Document = {
        "date": (now or datetime.now(UTC)).isoformat(timespec="seconds"),
        "host": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
        "python": platform.python_version(),
        "seconds": round(seconds, 3),
        "rules": {
            verdict.rule: {
                "seconds": round(verdict.seconds, 3),
                "leases_ms": list(verdict.leases_ms),
                "reason": verdict.reason,
            }
            for verdict in verdicts
            if verdict.outcome != "not-applicable"
        },
    }
    return {"claims": claims, "digest": digest(claims), "run": run}


def digest(claims: Mapping[str, Any]) -> str:
    """SHA-256 of the claims' canonical form: sorted keys, no spaces, ASCII."""
    canonical = json.dumps(claims, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def text(document: Document) -> str:
    """The certificate as it is kept in a file."""
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def faults(document: Document) -> list[str]:
    """Why the document is no certificate, empty if it is one; that its rules are of another version is no fault."""
    try:
        claims: Document = document["claims"]
        outcomes: dict[str, str] = claims["verdicts"]
        found = [] if document["digest"] == digest(claims) else ["the digest is not that of the claims"]
        if not set(outcomes.values()) <= set(OUTCOMES):
            found.append("there are verdicts that no rule can give")
        elif claims["certified"] != conclude(outcomes, filtered=claims["filtered"]).certified:
            found.append("the verdicts do not amount to what it says")
        if claims["rules"] == rule_set_hash():
            found += _against_the_rules(claims)
    except (KeyError, TypeError, AttributeError) as error:
        return [f"it has not the form of a certificate: {error!r}"]
    return found


def _against_the_rules(claims: Document) -> list[str]:
    """What the rules that are installed here say of a certificate that names them: none is missing or left out."""
    outcomes, rules = claims["verdicts"], {rule.id: rule for rule in catalogue()}
    found = []
    if unknown := sorted(outcomes.keys() - rules.keys()):
        found.append(f"there is no rule {unknown[0]}")
    if (missing := sorted(rules.keys() - outcomes.keys())) and not claims["filtered"]:
        found.append(f"{_count(len(missing), 'rule')} without a verdict, {missing[0]} first")
    powers, levels = (None, *claims["powers"]), claims["levels"]
    for rule_id, outcome in outcomes.items():
        rule = rules.get(rule_id)
        if rule is None:
            continue
        applies = rule.level in levels and rule.base in levels and rule.needs in powers
        if applies == (outcome == "not-applicable"):
            found.append(f"{rule_id} {'applies' if applies else 'does not apply'} to what it declares")
    return found


def differences(before: Document, after: Document) -> list[tuple[str, str, str]]:
    """Rules with another verdict, and the verdicts before and after; ``unknown`` where one has none."""
    one, other = before["claims"]["verdicts"], after["claims"]["verdicts"]
    names = sorted({*one, *other})
    told = [(name, one.get(name, "unknown"), other.get(name, "unknown")) for name in names]
    return [difference for difference in told if difference[1] != difference[2]]


def _by_level(rules: Sequence[Rule], outcomes: Mapping[str, str]) -> dict[str, dict[str, int]]:
    counted: dict[str, Counter[str]] = {}
    for rule in rules:
        counted.setdefault(rule.level, Counter())[outcomes[rule.id]] += 1
    return {level: dict(counts) for level, counts in sorted(counted.items())}


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
