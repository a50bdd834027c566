"""An audit that could not look is no pass."""

import importlib.util
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("audit", Path(__file__).with_name("audit.py"))
audit = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(audit)

WANTED = {"click": "8.3.0", "rich": "15.0"}


def entry(name, *ids):
    return {"name": name, "version": "1", "vulns": [{"id": one, "fix_versions": ["9.9"]} for one in ids]}


def test_all_looked_at_and_nothing_known_is_clean():
    code, told = audit.judged(WANTED, {"dependencies": [entry("click"), entry("Rich")]})
    assert (code, told) == (0, ["2 distributions, no known vulnerability"])


def test_what_is_known_is_told_with_the_version_that_mends_it():
    code, told = audit.judged(WANTED, {"dependencies": [entry("click", "CVE-2026-1"), entry("rich")]})
    assert (code, told) == (1, ["click 8.3.0: CVE-2026-1, fixed in 9.9"])


@pytest.mark.parametrize(
    ("report", "why"),
    [
        ({"failed": "no network"}, "no network"),
        ({"dependencies": [entry("click"), {"name": "rich", "skip_reason": "not found"}]}, "rich: not found"),
        ({"dependencies": [entry("click")]}, "not in the report"),
        ({}, "2 of 2"),
    ],
)
def test_what_could_not_be_looked_at_is_no_pass(report, why):
    code, (told,) = audit.judged(WANTED, report)
    assert code == 75
    assert told.startswith("NOT AUDITED")
    assert why in told


def test_what_users_get_with_ours_is_asked_about_and_not_ours():
    found = audit.wanted()
    assert {"redis", "psycopg", "pymongo", "boto3", "botocore", "grpcio", "click", "rich"} <= set(found)
    assert not [name for name in found if name.startswith("tenure")]
    assert "ruff" not in found
