"""What is made of a certificate and its verdicts beside it: each file's name, and what writes it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tenure_conformance.report.badge import render as render_badge
from tenure_conformance.report.junit import render as render_junit
from tenure_conformance.report.page import render as render_page

Renderer = Callable[[Mapping[str, Any], Sequence[Mapping[str, Any]]], str]
"""From a certificate's document and the verdicts as ``Verdict.to_json`` has them, a file's text."""

RENDERERS: dict[str, Renderer] = {"badge.svg": render_badge, "junit.xml": render_junit, "report.html": render_page}
