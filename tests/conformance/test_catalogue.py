"""The catalogue: complete, generated, and every sentence of the protocol that a backend keeps has a rule."""

import re
from pathlib import Path

import pytest
from tenure_conformance.rule import AREAS, CATALOGUE, catalogue, catalogue_json, rule, select

PROTOCOL = Path(__file__).parents[2] / "docs" / "protocol.md"
ANCHOR = re.compile(r'<a id="([^"]+)">')

NOT_OF_A_BACKEND = {"connect-url": "the registry's, and every target that is opened by a URL shows it"}


def _section(number):
    return next(part for part in re.split(r"^## ", PROTOCOL.read_text(), flags=re.MULTILINE) if part.startswith(number))


def _cited():
    return {anchor for one in catalogue() for anchor in one.spec}


def test_the_kept_catalogue_is_the_generated_one():
    assert CATALOGUE.read_text() == catalogue_json(), "write catalogue_json() to catalogue.json"


def test_there_are_rules_of_every_area():
    assert {one.area for one in catalogue()} == AREAS.keys()
    assert len(catalogue()) >= 120


def test_a_rule_is_one_sentence():
    for one in catalogue():
        assert re.fullmatch(r"[^\n]{20,230}\.", one.sentence), f"{one.id}: {one.sentence}"
        assert "assert" not in one.sentence


def test_names_of_rules_are_their_own_within_an_area():
    names = [(one.area, one.check.__name__) for one in catalogue()]
    assert len(set(names)) == len(names)


def test_every_anchor_that_a_rule_cites_is_in_the_protocol():
    known = set(ANCHOR.findall(PROTOCOL.read_text()))
    assert _cited() <= known


@pytest.mark.parametrize("number", ["1", "2", "3", "4", "5", "6", "7", "9", "10"])
def test_every_sentence_has_a_rule(number):
    anchors = ANCHOR.findall(_section(f"{number}. "))
    assert anchors
    missing = [anchor for anchor in anchors if anchor not in _cited() | NOT_OF_A_BACKEND.keys()]
    assert missing == []


def test_every_row_has_a_rule_that_builds_its_situations():
    rows = {one.spec[0] for one in select(("CLM-1*",))}
    assert rows == {f"claim-row-{number}" for number in range(1, 15)}


def test_an_id_is_given_once():
    with pytest.raises(ValueError, match="never given again"):
        rule("CLM-001", level="lease", spec="claim-row-1")(None)


@pytest.mark.parametrize("rule_id", ["CLM-1", "XYZ-001", "clm-900", "CLM001"])
def test_an_id_has_an_area_and_a_number(rule_id):
    with pytest.raises(ValueError, match=rule_id):
        rule(rule_id, level="lease", spec="claim-row-1")(None)


def test_rules_are_chosen_by_glob_and_level():
    assert {one.area for one in select(("tko-*",))} == {"TKO"}
    assert {one.level for one in select((), ("hints",))} == {"hints"}
    assert select(("ZZZ*",)) == ()
