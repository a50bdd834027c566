"""The third party's example is certified from outside, and the page that goes through it says what happens."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "flock"
PAGE = ROOT / "docs" / "certify.md"
TARGET = "conformance_target:TARGET"
LONGEST_S = 600


@pytest.fixture
def project(tmp_path):
    """A copy of the author's project, so that nothing of this repository's is written to."""
    return Path(shutil.copytree(EXAMPLE, tmp_path / "flock", ignore=shutil.ignore_patterns(".*", "__pycache__")))


def environment(project):
    """The author's shell: commands of this environment, its own sources, temporary files where syncing is quick."""
    quick = {"TMPDIR": "/dev/shm"} if os.access("/dev/shm", os.W_OK) else {}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, **quick, "PATH": path, "PYTHONPATH": str(project / "src"), "COLUMNS": "200"}


def run(project, *command):
    done = subprocess.run(
        command,
        cwd=project,
        env=environment(project),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.slow
def test_the_example_is_certified_by_pytest_and_by_the_command(project):
    options = ("-p", "no:cacheprovider", "--tenure-target", TARGET, "--tenure-out", "by-pytest", "-q")
    by_pytest = ("pytest", "--pyargs", "tenure_conformance", *options)
    by_command = ("tenure-conformance", "run", TARGET, "--out", "by-command")
    for command in (by_pytest, by_command):
        code, output = run(project, *command)
        assert code == 0, output
        assert "flock: certified: " in output
    one, other = (json.loads((project / name / "certificate.json").read_text()) for name in ("by-pytest", "by-command"))
    assert one["claims"]["certified"] is True
    assert one["claims"]["version"] == "0.1.0"
    assert one["claims"]["levels"] == ["lease", "durable", "shared", "processes"]
    assert one["digest"] == other["digest"]
    for name in ("by-pytest", "by-command"):
        code, output = run(project, "tenure-conformance", "verify", f"{name}/certificate.json")
        assert code == 0, output
        assert (project / name / "report.html").exists()
        assert "certified" in (project / name / "badge.svg").read_text()


def steps():
    """The commands of the page, each with what it says comes of it."""
    text = PAGE.read_text("utf-8")
    blocks = re.findall(r"^```(console|text)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    found = []
    for kind, block in blocks:
        if kind == "console":
            found += [[line[2:].partition("  #")[0].strip(), ""] for line in block.splitlines()]
        else:
            found[-1][1] = block.strip()
    return found


def test_the_page_shows_the_examples_target():
    (shown,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert shown == (EXAMPLE / "conformance_target.py").read_text("utf-8")


def test_the_page_counts_the_examples_lines():
    (told,) = re.findall(r"\(examples/flock\), (\d+) lines", PAGE.read_text("utf-8"))
    assert int(told) == len((EXAMPLE / "src" / "tenure_flock" / "__init__.py").read_text("utf-8").splitlines()) < 120


def test_what_the_page_types_comes_out_as_it_says(project):
    """All but the commands that install, and those that run every rule: these are another test's."""
    (project / "report").mkdir()
    for command, told in steps():
        if re.match(r"python3 -m venv|\. |pip |cd |deactivate|pytest ", command):
            continue
        everything = command.startswith("tenure-conformance run") and "--rule" not in command
        code, output = run(project, "bash", "-c", command + (" --level processes" if everything else ""))
        expected = 0
        if command.startswith("tenure-conformance run"):
            expected = 1 if "report" in command and not everything else 2
        elif command.startswith("tenure-conformance verify"):
            expected = 2  # of the rules of one level
        assert code == expected, f"{command}\n{output}"
        if told and not everything:
            assert " ".join(told.split()) in " ".join(output.split()), command
    assert "not certified" in (project / "badge.svg").read_text()


def test_a_broken_example_shows_two_leases_of_one_run_alive_at_once(project):
    """As the page says of step 4."""
    assert run(project, "bash", "-c", next(command for command, _ in steps() if command.startswith("sed")))[0] == 0
    code, output = run(project, "tenure-conformance", "run", TARGET, "--rule", "CON-001", "--out", "report")
    assert code == 1, output
    (verdict,) = json.loads((project / "report" / "verdicts.json").read_text())
    claims = json.loads((project / "report" / "certificate.json").read_text())["claims"]
    from tenure_conformance.report.lifetimes import lives
    from tenure_conformance.report.wording import read

    alive = [
        (life.slot, max(one.begin for one in life.stretches if one.state == "alive"))
        for life in lives(read(verdict["calls"]), claims)
        if any(one.state == "alive" for one in life.stretches)
    ]
    assert len(alive) > len({slot for slot, _ in alive})
