"""The broken backends: each has its defect, is caught by every rule that lists it, and every rule catches one."""

import asyncio
import re
from pathlib import Path

import pytest
from tenure.decision import RunState
from tenure_conformance import selftest
from tenure_conformance.mutants import MUTANTS, Mutant, claim_only, reference, sqlite
from tenure_conformance.mutants.mutant import register
from tenure_conformance.rule import catalogue, select
from tenure_conformance.session import Session
from tenure_conformance.targets.memory import target as memory

ANCHORS = set(re.findall(r'<a id="([^"]+)">', (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()))
INSTANT = tuple(rule.id for rule in catalogue() if rule.pace == "quick" and rule.level == "lease")


def wrong(target, rules):
    """The verdicts of these rules that are no pass, with the reason."""
    with target.serving(None, "auto") as url:
        verdicts = asyncio.run(Session(target=target, url=url, rules=rules).run())
    return [(one.rule, one.outcome, one.reason) for one in verdicts if one.outcome != "pass"]


def test_there_are_many_and_of_every_kind():
    kinds = {mutant.target.levels[0] for mutant in MUTANTS.values()}
    assert len(MUTANTS) >= 60
    assert kinds == {"lease", "claim-only"}
    assert sum(bool(mutant.seen) for mutant in MUTANTS.values()) >= 40


def test_each_is_told_in_one_sentence_and_breaks_one_of_the_protocol():
    for mutant in MUTANTS.values():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", mutant.name)
        assert re.fullmatch(r"[A-Z`][^\n]{10,140}\.", mutant.defect), mutant
        assert mutant.breaks, mutant
        assert set(mutant.breaks) <= ANCHORS, mutant


def test_each_defect_still_fits_the_reference():
    stale = []
    for mutant in MUTANTS.values():
        with mutant.target.serving(None, "auto") as url:
            try:
                assert mutant.target.open(url, "app") is not None
            except reference.StaleEdit as error:
                stale.append(f"{mutant.name}: {error}")
    assert stale == []


def test_no_rule_is_idle_and_no_broken_backend_forgotten():
    assert list(selftest.gaps()) == []


def test_a_rule_lists_what_breaks_one_of_its_sentences():
    strays = [
        f"{rule.id}: {name}"
        for rule in catalogue()
        for name in rule.catches
        if not set(MUTANTS[name].breaks) & set(rule.spec)
    ]
    assert strays == []


@pytest.mark.slow
def test_each_is_caught_by_every_rule_that_lists_it():
    assert selftest.run(seed=1, report=lambda bite: None) == []


def test_a_copy_without_an_edit_is_right():
    copy = reference.reference()
    target = reference.on_memory("copy", lambda: (copy.MemoryBackend, copy.MemoryStore()))
    assert wrong(target, select(INSTANT)) == []


def test_a_win_without_a_change_is_right(monkeypatch):
    monkeypatch.setattr(reference, "register", lambda mutant: made.append(mutant))
    made: list[Mutant] = []
    reference.wins("unchanged", "Nothing.", "claim-row-8", lambda win: win.won)
    assert wrong(made[0].target, select(INSTANT)) == []


def test_the_claim_only_backend_is_right():
    target = claim_only.on_claims("right", claim_only.Claims)
    assert wrong(target, [rule for rule in catalogue() if rule.applies(target)]) == []


def test_a_copy_of_sqlite_is_right():
    target = sqlite.on_sqlite("copy", lambda: sqlite.backend(sqlite.Edits()))
    assert wrong(target, select(("CLM-00*", "CON-00*", "RES-*", "NAM-00[1-5]", "ACT-00*", "FNC-006"))) == []


def test_an_edit_that_no_longer_fits_is_told():
    with pytest.raises(reference.StaleEdit, match="0 times"):
        reference.edited("a = 1", (("b = 1", "b = 2"),))
    with pytest.raises(reference.StaleEdit, match="2 times"):
        reference.edited("a = 1; a = 1", (("a = 1", "a = 2"),))
    assert reference.edited("a = 1", (("1", "2"),)) == "a = 2"


def test_a_copy_is_a_module_of_its_own():
    broken = reference.reference(decision=(("now < self.expires_at", "now <= self.expires_at"),)).decision
    assert broken.RunState(0, 1, 1, 1, "t", "h", 10, 0, 10).live(10) is True
    assert RunState(0, 1, 1, 1, "t", "h", 10, 0, 10).live(10) is False


def test_a_name_is_given_once():
    with pytest.raises(ValueError, match="of that name"):
        register(next(iter(MUTANTS.values())))


def test_a_right_backend_is_not_falsely_red_beside_burners():
    turns = []
    rules = selftest.repeated(
        memory,
        times=1,
        load=2,
        report=lambda turn, found: turns.append((turn, found)),
        rules=select(("TKO-*", "LSE-*")),
    )
    assert [one for one in rules if one.outcome == "fail"] == []
    assert [turn for turn, _ in turns] == [1]
