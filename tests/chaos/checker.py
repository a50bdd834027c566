"""Judges the evidence of a chaos run: pure, so that it is tested with forged evidence."""

from dataclasses import dataclass

from . import holding, household, keeping, timing
from .evidence import Evidence
from .story import Story
from .verdict import CHECKS, Excused, Finding, Measured, Violation

PARTS = (holding, keeping, timing, household)
"""Where the checks are registered."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """All findings, in the order of time."""

    story: Story
    violations: list[Violation]
    excused: list[Excused]
    measured: list[Measured]


def judge(evidence: Evidence) -> Judgement:
    """Run every check."""
    story = Story(evidence)
    found: list[Finding] = [finding for check in CHECKS.values() for finding in check(story)]
    found.sort(key=lambda finding: finding.at)
    return Judgement(
        story,
        [one for one in found if isinstance(one, Violation)],
        [one for one in found if isinstance(one, Excused)],
        [one for one in found if isinstance(one, Measured)],
    )
