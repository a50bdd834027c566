"""The rules that harm the store: a networked store that is right keeps them, and each defect is caught by its rule."""

import asyncio
from dataclasses import replace

import pytest
from tenure_conformance.rule import catalogue, select
from tenure_conformance.session import Session
from tenure_conformance.target import TargetError
from tenure_conformance.targets.sqlite import target as sqlite

from .linestore.broken import BROKEN
from .linestore.target import line, make_target

FAULTS = [rule for rule in catalogue() if rule.needs]


def verdicts(target, rules):
    with target.serving(None, "auto") as url:
        return asyncio.run(Session(target=target, url=url, rules=rules).run())


def test_a_networked_store_that_is_right_keeps_every_rule():
    told = verdicts(line, FAULTS)
    assert {one.rule: (one.outcome, one.reason) for one in told} == {rule.id: ("pass", "") for rule in FAULTS}


def test_a_file_takes_part_in_what_can_be_done_to_it():
    told = {one.rule: one for one in verdicts(sqlite, FAULTS)}
    for rule in FAULTS:
        expected = "not-applicable" if rule.needs == "network" or rule.level == "hints" else "pass"
        assert told[rule.id].outcome == expected, told[rule.id].reason
    assert "the power network over its store" in told["FLT-021"].reason


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_a_defect_is_caught_by_a_statement_of_its_rules(broken):
    for verdict in verdicts(make_target(broken.client, broken.server), select(broken.rules)):
        assert verdict.outcome == "fail", f"{verdict.rule}: {verdict.outcome} {verdict.reason}"
        assert not verdict.crashed, f"{verdict.rule}: {verdict.traceback()}"


def test_each_rule_catches_a_defect():
    assert {rule for broken in BROKEN for rule in broken.rules} == {rule.id for rule in FAULTS}


def test_the_level_and_the_means_belong_together():
    with pytest.raises(TargetError, match="faults"):
        replace(line, faults=None)
    with pytest.raises(TargetError, match="faults"):
        replace(line, levels=("lease", "durable", "shared"))
