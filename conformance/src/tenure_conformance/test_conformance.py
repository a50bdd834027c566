"""The rules as tests; collected by ``pytest --pyargs tenure_conformance --tenure-target TARGET``."""

from tenure_conformance.plugin import Background, check
from tenure_conformance.rule import Rule


def test_rule(tenure_rule: Rule, tenure_session: Background) -> None:
    """The target keeps the rule."""
    check(tenure_session, tenure_rule)
