"""Certify any backend of tenure: the rules of the lease protocol, run against a store, with proof that they bite."""

import sys

if "pytest" in sys.modules:
    # Before any rule is imported, or third parties see bare AssertionErrors. Without pytest nothing is rewritten, and
    # processes that rules start are there sooner.
    sys.modules["pytest"].register_assert_rewrite(
        "tenure_conformance.rules",
        "tenure_conformance.bench",
        "tenure_conformance.client",
        "tenure_conformance.faults",
        "tenure_conformance.processes",
    )

from tenure_conformance.bench import Bench  # after the registration above
from tenure_conformance.rule import Rule, catalogue, rule
from tenure_conformance.session import Session
from tenure_conformance.target import Level, Limits, Target, TargetError, Timing
from tenure_conformance.verdict import Call, Verdict

__all__ = [
    "Bench",
    "Call",
    "Level",
    "Limits",
    "Rule",
    "Session",
    "Target",
    "TargetError",
    "Timing",
    "Verdict",
    "catalogue",
    "rule",
]
