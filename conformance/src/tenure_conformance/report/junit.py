"""The verdicts as JUnit's XML, for the machines that show test results."""

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any
from xml.etree import ElementTree

from tenure_conformance.report.markup import visible
from tenure_conformance.rule import AREAS, catalogue

_NOT_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_KINDS = {"fail": "failure", "inconclusive": "error", "waived": "skipped", "not-applicable": "skipped"}


def render(document: Mapping[str, Any], verdicts: Sequence[Mapping[str, Any]]) -> str:
    """One suite per area; what keeps a target from being certified is a failure or an error, or was waived."""
    claims, run = document["claims"], document["run"]
    sentences = {rule.id: rule.sentence for rule in catalogue()}
    root = ElementTree.Element("testsuites", name=_text(f"tenure-conformance {claims['target']}"))
    _count(root, verdicts)
    for area, told in groupby(verdicts, key=lambda verdict: str(verdict["rule"])[:3]):
        of_area = list(told)
        name = f"{area} {AREAS.get(area, '')}".strip()
        suite = ElementTree.SubElement(root, "testsuite", name=name, timestamp=run["date"])
        _count(suite, of_area)
        for verdict in of_area:
            _add(suite, name, verdict, sentences.get(verdict["rule"], ""))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _count(element: ElementTree.Element, verdicts: Sequence[Mapping[str, Any]]) -> None:
    kinds = [_kind(verdict) for verdict in verdicts]
    element.set("tests", str(len(verdicts)))
    for attribute, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        element.set(attribute, str(kinds.count(kind)))
    element.set("time", f"{sum(verdict['seconds'] for verdict in verdicts):.3f}")


def _add(suite: ElementTree.Element, area: str, verdict: Mapping[str, Any], sentence: str) -> None:
    name = _text(f"{verdict['rule']} {sentence}".strip())
    case = ElementTree.SubElement(suite, "testcase", classname=area, name=name, time=f"{verdict['seconds']:.3f}")
    if (kind := _kind(verdict)) is not None:
        first_line = _text(verdict["reason"].partition("\n")[0])
        told = ElementTree.SubElement(case, kind, message=first_line, type=verdict["outcome"])
        told.text = _text("\n\n".join(part for part in (verdict["reason"], verdict["traceback"]) if part))


def _kind(verdict: Mapping[str, Any]) -> str | None:
    return "error" if verdict["crashed"] and verdict["outcome"] == "fail" else _KINDS.get(verdict["outcome"])


def _text(text: str) -> str:
    """The text with what XML cannot hold written out."""
    return _NOT_XML.sub("\ufffd", visible(text))
