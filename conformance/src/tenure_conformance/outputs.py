"""The files that a run leaves in a directory."""

import json
from collections.abc import Sequence
from pathlib import Path

from tenure_conformance import certificate
from tenure_conformance.report import RENDERERS
from tenure_conformance.verdict import Verdict

CERTIFICATE = "certificate.json"
VERDICTS = "verdicts.json"


def write(directory: Path, document: certificate.Document, verdicts: Sequence[Verdict]) -> list[Path]:
    """Write the certificate, the verdicts with their calls, and everything that is rendered from them."""
    directory.mkdir(parents=True, exist_ok=True)
    told = [verdict.to_json() for verdict in verdicts]
    texts = {
        CERTIFICATE: certificate.text(document),
        VERDICTS: json.dumps(told, indent=1, ensure_ascii=False) + "\n",
        **{name: render(document, told) for name, render in RENDERERS.items()},
    }
    for name, text in texts.items():
        (directory / name).write_text(text, encoding="utf-8", errors="backslashreplace")
    return [directory / name for name in texts]
