"""The simulation finds nothing in the runner, and in each broken one what is broken."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from . import build, checker, scenario, simulation
from .__main__ import main
from .broken import BROKEN, Broken, search
from .invariants import INVARIANTS
from .shrink import needed_faults
from .trace import Trace

TESTS = Path(__file__).parents[1]
PROTOCOL = (TESTS.parent / "docs" / "protocol.md").read_text(encoding="utf-8")
SEEDS = int(os.environ.get("TENURE_SIMULATE", "200"))
CHUNK = 20

RARE = {"no-width": 83, "late-won-starts": 40}
"""From where on these are looked for: few scenarios have what they need."""


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_seed_has_a_violation(first: int) -> None:
    for seed in range(first, min(first + CHUNK, SEEDS)):
        violations = checker.judge(simulation.run(scenario.make(seed)))
        assert violations == [], f"nox -s simulate -- --seed {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_what_is_broken_is_found_by_the_invariant_that_names_it(broken: Broken) -> None:
    found = search(broken, first=RARE.get(broken.name, 0), seeds=60)
    assert found.violation is not None
    assert found.violation.invariant == broken.found_by


def test_a_copy_of_the_code_without_a_defect_is_right() -> None:
    """What is found in broken copies is the defect's, not the copying's."""
    code = build.copied({})
    assert code.engine.Engine is not build.right().engine.Engine
    for seed in range(5):
        made = scenario.make(seed)
        copied, right = simulation.run(made, code), simulation.run(made)
        assert checker.judge(copied) == []
        assert list(Trace(copied).lines()) == list(Trace(right).lines())


def test_an_edit_that_fits_nowhere_is_an_error() -> None:
    with pytest.raises(build.StaleEdit, match=r"occurs 0 times in lane\.py"):
        build.copied({"lane": (("nothing like this", ""),)})


def test_the_same_seed_goes_the_same_way_in_any_process() -> None:
    """Also where strings have other hashes, and sets another order."""

    def trace(hash_seed: str) -> str:
        command = [sys.executable, "-m", "simulation", "--seed", "4", "--all"]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        return subprocess.run(command, cwd=TESTS, env=environment, capture_output=True, text=True, check=True).stdout

    first = trace("1")
    assert first.count("\n") > 500
    assert first == trace("2")


@pytest.mark.parametrize("anchor", sorted({one.anchor for one in INVARIANTS.values()}))
def test_an_invariant_watches_over_a_sentence_of_the_protocol(anchor: str) -> None:
    assert f'<a id="{anchor}"></a>' in PROTOCOL


def test_a_broken_runner_names_an_invariant() -> None:
    assert {one.found_by for one in BROKEN} <= set(INVARIANTS)
    assert len({one.name for one in BROKEN}) == len(BROKEN) >= 10


def test_a_violation_needs_few_faults_and_is_there_with_these_alone() -> None:
    broken = next(one for one in BROKEN if one.name == "no-heartbeats-after-stop")
    found = search(broken, seeds=60)
    made, code = scenario.make(found.seeds - 1), broken.code()
    kept = needed_faults(made, broken.found_by, code)
    assert len(kept) < len(made.faults) / 2
    assert checker.judge(simulation.run(made.only(kept), code), (broken.found_by,))


def test_a_replay_shows_the_trace_and_says_how_to_have_it_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "4", "--only", "0,1"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^ +\d+\.\d{3}  i1 +-> #\d+ claim \w+@\d+ t\d+ scheduled after 0$", out, re.MULTILINE)
    assert out.endswith("again: nox -s simulate -- --seed 4 --only 0,1\n")
