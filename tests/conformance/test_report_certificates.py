"""The certificates that are kept: of the rules as they are now, and as the command writes them."""

import ast
import json
import re
from importlib.metadata import version
from pathlib import Path

import pytest
from tenure_conformance import certificate
from tenure_conformance.report import RENDERERS
from tenure_conformance.rule import rule_set_hash
from tenure_conformance.target import load

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "conformance" / "certificates"
REMEDY = "run: nox -s certificates"


def targets():
    """Those of the nox sessions."""
    (told,) = re.findall(r"^TARGETS = (\[.*?\])", (ROOT / "noxfile.py").read_text(), re.DOTALL | re.MULTILINE)
    return ast.literal_eval(told)


def kept(name):
    return json.loads((KEPT / name / "certificate.json").read_text("utf-8"))


def test_every_backend_of_this_repository_has_one():
    assert {path.name for path in KEPT.iterdir() if path.is_dir()} == set(targets()), REMEDY


@pytest.mark.parametrize("name", targets())
def test_it_is_of_the_rules_and_the_target_as_they_are_now(name):
    claims, target = kept(name)["claims"], load(name)
    assert claims["rules"] == rule_set_hash(), REMEDY
    assert claims["suite"] == version("tenure-conformance"), REMEDY
    assert (claims["version"], claims["levels"]) == (target.version(), list(target.levels)), REMEDY


@pytest.mark.parametrize("name", targets())
def test_it_is_whole_and_certifies(name):
    document = kept(name)
    assert certificate.faults(document) == []
    assert document["claims"]["certified"] is True


@pytest.mark.parametrize("name", targets())
def test_page_and_badge_belong_to_it(name):
    document = kept(name)
    assert (KEPT / name / "badge.svg").read_text("utf-8") == RENDERERS["badge.svg"](document, ()), REMEDY
    assert document["digest"] in (KEPT / name / "report.html").read_text("utf-8"), REMEDY
