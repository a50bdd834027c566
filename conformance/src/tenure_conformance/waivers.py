"""Failures that are known: named by rule, with a reason and an end, and strict."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from tenure_conformance.rule import catalogue
from tenure_conformance.target import TargetError
from tenure_conformance.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Waiver:
    """A rule that may fail until a day, and why; a target with one is not certified."""

    rule: str
    reason: str
    until: date


def load(path: Path) -> Mapping[str, Waiver]:
    """The waivers of a TOML file, one ``[[waiver]]`` each; TargetError if one is incomplete or names no rule."""
    known = {rule.id for rule in catalogue()}
    try:
        found = tomllib.loads(path.read_text()).get("waiver", [])
        waivers = {entry["rule"]: Waiver(entry["rule"], entry["reason"], entry["until"]) for entry in found}
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise TargetError(f"{path}: not waivers with rule, reason and until: {error!r}") from error
    for waiver in waivers.values():
        if waiver.rule not in known:
            raise TargetError(f"{path}: there is no rule {waiver.rule}")
        if type(waiver.until) is not date or not waiver.reason.strip():
            raise TargetError(f"{path}: the waiver of {waiver.rule} needs a reason and a date (until = 2026-12-31)")
    return waivers


def waived(verdict: Verdict, waiver: Waiver | None, today: date | None = None) -> Verdict:
    """The verdict under a waiver: a failure is waived until its day, and a pass is a failure of the waiver."""
    if waiver is None or verdict.outcome not in ("pass", "fail"):
        return verdict
    if verdict.outcome == "pass":
        return replace(verdict, outcome="fail", reason=f"it passes: remove the waiver ({waiver.reason})")
    if (today or date.today()) > waiver.until:  # a waiver ends with the day where it is read
        return replace(verdict, reason=f"the waiver ended on {waiver.until}: {verdict.reason}")
    return replace(verdict, outcome="waived", reason=f"{waiver.reason} (until {waiver.until}): {verdict.reason}")
