"""Whether what tenure's distributions depend on has known vulnerabilities: python tests/audit/audit.py

Exit code 0: looked at, none known. 1: some are. 75: the service that knows them did not answer for all of it, so that
nothing can be said. pip-audit alone would call that green.
"""

import json
import subprocess
import sys
import tempfile
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

OURS = {
    "tenure": {"cli", "otel", "web"},
    "tenure-sqlite": set(),
    "tenure-redis": set(),
    "tenure-postgres": set(),
    "tenure-mongo": set(),
    "tenure-dynamodb": set(),
    "tenure-etcd": set(),
    "tenure-conformance": set(),
}
CLEAN, VULNERABLE, NOT_AUDITED = 0, 1, 75
_PATIENCE_S = 300


def wanted() -> dict[str, str]:
    """The distributions, by name with their versions here, that whoever installs ours gets with them."""
    found: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    todo = [(name, extra) for name, extras in OURS.items() for extra in ("", *extras)]
    while todo:
        name, extra = todo.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        installed = distribution(name)
        if name not in OURS:
            found[name] = installed.version
        for requirement in map(Requirement, installed.requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                todo += [(canonicalize_name(requirement.name), more) for more in ("", *requirement.extras)]
    return dict(sorted(found.items()))


def audited(wanted: dict[str, str]) -> dict[str, object]:
    """What pip-audit says, or why it says nothing."""
    with tempfile.TemporaryDirectory() as place:
        listed = Path(place) / "requirements.txt"
        listed.write_text("".join(f"{name}=={version}\n" for name, version in wanted.items()))
        command = [sys.executable, "-m", "pip_audit", "-r", str(listed), "--no-deps", "--disable-pip"]
        command += ["--format", "json", "--progress-spinner", "off"]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    try:
        return json.loads(ran.stdout)
    except ValueError:
        said = [line.strip() for line in ran.stderr.splitlines() if line.strip()]
        return {"failed": said[-1] if said else f"it ended with {ran.returncode}"}


def judged(wanted: dict[str, str], report: dict[str, object]) -> tuple[int, list[str]]:
    """The exit code, and what there is to say."""
    entries = {canonicalize_name(one["name"]): one for one in report.get("dependencies", ())}
    known = {name: one for name, one in entries.items() if "vulns" in one}
    told = [
        f"{name} {wanted.get(name, '')}: {found['id']}, fixed in {', '.join(found['fix_versions']) or 'no version'}"
        for name, one in known.items()
        for found in one["vulns"]
    ]
    if told:
        return VULNERABLE, told
    if missing := [name for name in wanted if name not in known]:
        why = report.get("failed") or entries.get(missing[0], {}).get("skip_reason") or "it is not in the report"
        return NOT_AUDITED, [f"NOT AUDITED: {len(missing)} of {len(wanted)}, of which {missing[0]}: {why}"]
    return CLEAN, [f"{len(wanted)} distributions, no known vulnerability"]


def main() -> int:
    """Audit, and print what there is to say."""
    asked = wanted()
    code, told = judged(asked, audited(asked))
    print("\n".join(told))
    return code


if __name__ == "__main__":
    sys.exit(main())
