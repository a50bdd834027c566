"""The page of the benchmarks is what its results give."""

import hashlib
import json
import re
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import pytest
from peers import page, plan

RESULTS = page.read()
TEXT = page.PAGE.read_text("utf-8")


def test_the_page_is_what_the_results_give():
    assert page.filled(TEXT, RESULTS) == TEXT, "nox -s bench -- page writes it anew"


def test_each_plot_is_of_these_results():
    digest = hashlib.sha256(page.RESULTS.read_bytes()).hexdigest()
    plots = {
        name: (page.PAGE.parent / name).read_text("utf-8") for name in re.findall(r"\((benchmarks/\w+\.svg)\)", TEXT)
    }
    assert {name.stem for name in page.RESULTS.parent.glob("*.svg")} == {Path(name).stem for name in plots}
    assert [name for name, plot in plots.items() if digest not in plot] == [], "nox -s bench -- page draws them anew"


@pytest.mark.parametrize("subject", plan.SUBJECTS, ids=lambda subject: f"{subject.name}-{subject.store}")
def test_each_peer_has_figures_of_each_measure(subject):
    for measure in subject.measures:
        assert page.rounds(RESULTS, measure, subject.store, subject.name)


def test_a_figure_that_a_peer_has_better_needs_a_reason():
    slower = deepcopy(RESULTS)
    for one in slower["cycle"]["redis"]["tenure"]:
        one["cycle"]["p50"] *= 100
    with pytest.raises(KeyError, match="claim and finish"):
        page.reasons(slower)


def test_a_takeover_that_never_comes_is_told_as_such():
    never = deepcopy(RESULTS)
    never["worker"]["redis"]["docket"] = [{"s": None}, {"s": None}]
    row = next(line for line in page.shared(never).splitlines() if "docket" in line)
    assert row.endswith("| never |")


@pytest.mark.parametrize(
    ("value", "told"),
    [(None, ""), (float("inf"), "never"), (0.1425, "0.142"), (1.449, "1.45"), (21.27, "21.3"), (12552.7, "12,553")],
)
def test_figures_have_three_digits_that_count(value, told):
    assert page.shown(value) == told


@pytest.mark.slow
def test_a_measure_prints_figures_that_the_page_can_read():
    script = Path(page.__file__).with_name("ours.py")
    told = subprocess.run([sys.executable, script, "burst", "100"], check=True, capture_output=True, text=True).stdout
    table = page.alone({"burst": {"memory": {"tenure": [json.loads(told)]}}})
    assert re.search(r"^\| tenure \|( [\d.,]+ \|){5}$", table, re.MULTILINE)
