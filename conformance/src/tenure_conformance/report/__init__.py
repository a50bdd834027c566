"""What is made of a certificate and its verdicts beside it: each file's name, and what writes it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tenure_conformance.report import badge, junit, page

Renderer = Callable[[Mapping[str, Any], Sequence[Mapping[str, Any]]], str]
"""From a certificate's document and the verdicts as ``Verdict.to_json`` has them, a file's text."""

RENDERERS: dict[str, Renderer] = {"badge.svg": badge.render, "junit.xml": junit.render, "report.html": page.render}
