"""Certify any backend of tenure: the rules of the lease protocol, run against a store, with proof that they bite."""

import pytest

# Before any rule is imported, or third parties see bare AssertionErrors.
pytest.register_assert_rewrite(
    "tenure_conformance.rules",
    "tenure_conformance.bench",
    "tenure_conformance.client",
    "tenure_conformance.faults",
    "tenure_conformance.processes",
)

from tenure_conformance.bench import Bench  # noqa: E402  # after the registration above
from tenure_conformance.rule import Rule, catalogue, rule  # noqa: E402
from tenure_conformance.session import Session  # noqa: E402
from tenure_conformance.target import Level, Limits, Target, TargetError, Timing  # noqa: E402
from tenure_conformance.verdict import Call, Verdict  # noqa: E402

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
