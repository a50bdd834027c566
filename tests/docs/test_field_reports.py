"""Each row of the page about reports from the field names tests, or rules, that there are."""

import re
from pathlib import Path

import pytest
from tenure_conformance.rule import catalogue

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/field-reports.md").read_text("utf-8")
HEADS = ("| ---", "| reported", "| package")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith(HEADS)]
RULES = {one.id for one in catalogue()}


def named_in(row):
    """The names of the tests in it, each with its file; several before one file are all in that."""
    for names, file in re.findall(r"((?:\*[^*|]+\*[, ]*)+)\(`([^`]+\.py)`\)", row):
        for name in re.findall(r"\*([^*]+)\*", names):
            yield f"test_{name.replace(' ', '_')}", ROOT / "tests" / file


def rules_of(row):
    return re.findall(r"\b[A-Z]{3}-\d{3}\b", row)


def test_there_are_many():
    assert len(ROWS) >= 85


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2:60])
def test_the_tests_of_a_row_are_there(row):
    tests, rules = list(named_in(row)), rules_of(row)
    assert tests or rules
    missing = [name for name, file in tests if not re.search(rf"def {name}\(", file.read_text("utf-8"))]
    assert missing == []
    assert set(rules) <= RULES


def test_each_test_that_is_named_is_read():
    names = re.findall(r"\*([a-z][^*|]+)\*", "\n".join(ROWS))
    assert len(names) == sum(len(list(named_in(row))) for row in ROWS)
