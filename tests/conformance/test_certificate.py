"""The certificate: canonical, checkable, and never more than the verdicts give."""

import copy
from datetime import UTC, datetime

import pytest
from tenure_conformance import certificate
from tenure_conformance.rule import select
from tenure_conformance.targets.memory import target as memory
from tenure_conformance.verdict import Verdict

RULES = select(("CLM-00[1-3]",))


def document(outcomes=("pass", "pass", "pass"), **options):
    verdicts = [Verdict(rule=rule.id, outcome=outcome) for rule, outcome in zip(RULES, outcomes, strict=True)]
    given = {"seed": 1, "filtered": False, "seconds": 1.0, **options}
    return certificate.write(memory, RULES, verdicts, **given)


@pytest.mark.parametrize(
    ("outcomes", "filtered", "code"),
    [
        (["pass", "pass"], False, 0),
        (["pass", "not-applicable"], False, 0),
        (["pass", "fail"], False, 1),
        (["pass", "fail"], True, 1),
        (["waived", "fail"], False, 1),
        (["pass", "inconclusive"], False, 2),
        (["pass", "waived"], False, 2),
        (["pass", "pass"], True, 2),
        (["not-applicable"], False, 2),
        ([], False, 2),
    ],
)
def test_only_pass_and_not_applicable_certify(outcomes, filtered, code):
    told = {f"CLM-{number:03}": outcome for number, outcome in enumerate(outcomes)}
    conclusion = certificate.conclude(told, filtered=filtered)
    assert conclusion.code == code
    assert conclusion.certified is (code == 0)


def test_when_and_where_is_not_hashed():
    one = document(now=datetime(2026, 1, 1, tzinfo=UTC))
    other = document(now=datetime(2027, 1, 1, tzinfo=UTC), seconds=99.0)
    assert one["digest"] == other["digest"]
    assert one["run"] != other["run"]


def test_what_was_found_is_hashed():
    assert document()["digest"] != document(("pass", "pass", "fail"))["digest"]
    assert document()["digest"] != document(seed=2)["digest"]


def test_an_untouched_certificate_has_no_fault():
    assert certificate.faults(document(filtered=True)) == []
    assert certificate.faults(document(("pass", "fail", "waived"), filtered=True)) == []


@pytest.mark.parametrize("path", [("target",), ("verdicts", "CLM-001"), ("certified",), ("seed",)])
def test_a_touched_one_has(path):
    touched = copy.deepcopy(document())
    part = touched["claims"]
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = "touched"
    assert certificate.faults(touched)


def test_one_that_says_more_than_its_verdicts_has_a_fault_even_if_hashed_anew():
    touched = document(("pass", "fail", "pass"), filtered=True)
    touched["claims"]["certified"] = True
    touched["digest"] = certificate.digest(touched["claims"])
    assert certificate.faults(touched) == ["the verdicts do not amount to what it says"]


@pytest.mark.parametrize("nonsense", [{}, {"claims": {}}, {"claims": {"verdicts": []}, "digest": ""}])
def test_nonsense_is_no_certificate(nonsense):
    assert certificate.faults(nonsense)


def test_differences_name_both_verdicts():
    found = certificate.differences(document(), document(("pass", "fail", "pass")))
    assert found == [("CLM-002", "pass", "fail")]
