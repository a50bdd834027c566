"""The page in a real browser."""

import base64
import subprocess
import sys
from itertools import pairwise

import pytest
from tenure_conformance import certificate
from tenure_conformance.report import RENDERERS
from tenure_conformance.rule import select
from tenure_conformance.targets.memory import target as memory
from tenure_conformance.verdict import Call, Verdict

from ..browser import chromium

STEALING = """
from dataclasses import replace
from tenure.memory import MemoryBackend, MemoryStore
from tenure_conformance import Target

class Stealing(MemoryBackend):
    async def claim(self, claim):
        return await super().claim(replace(claim, lease_ms=max(1, claim.lease_ms // 2)))

store = MemoryStore()
TARGET = Target(name="stealing", url="m://", open=lambda url, ns: Stealing(store, namespace=ns))
"""
RULES = ("--rule", "TKO-002", "--rule", "TKO-00[168]", "--rule", "ATT-*")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page of a backend that grants half of each lease, as the command writes it."""
    place = tmp_path_factory.mktemp("stealing")
    (place / "stealing.py").write_text(STEALING)
    command = (sys.executable, "-m", "tenure_conformance.cli", "run", "stealing:TARGET", "--out", "out", *RULES)
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    return place / "out" / "report.html"


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


BOX = "(e => { const r = e.getBoundingClientRect(); return {x: r.x, y: r.y + scrollY, w: r.width, h: r.height} })"


def boxes(tab, selector):
    """Where the elements are that are seen."""
    found = tab.ask(f"[...document.querySelectorAll({selector!r})].filter(e => e.checkVisibility()).map({BOX})")
    return [box for box in found if box["w"] and box["h"]]


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_opens_without_errors_and_asks_nobody_for_anything(tab, page, width, scheme):
    tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    tab.open(page.as_uri(), width)
    assert tab.errors() == []
    asked = [event["params"]["request"]["url"] for event in tab.named("Network.requestWillBeSent")]
    assert asked == [page.as_uri()]


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_it_never_scrolls_sideways_and_nothing_sticks_out(tab, page, width):
    tab.open(page.as_uri(), width)
    assert tab.ask("document.documentElement.scrollWidth") <= width
    everything = "[...document.querySelectorAll('main :not(.line *)')]"  # a line ends in an ellipsis
    outside = f"{everything}.filter(e => e.getBoundingClientRect().right > innerWidth + 1)"
    assert tab.ask(f"{outside}.map(e => e.outerHTML.slice(0, 200))") == []


@pytest.mark.parametrize("width", [390, 1280])
def test_the_failing_rules_time_line_is_seen(tab, page, width):
    tab.open(page.as_uri(), width)
    (picture,) = boxes(tab, "#TKO-002 .picture")
    assert picture["h"] > 100
    bars, (marked,) = boxes(tab, "#TKO-002 .call"), boxes(tab, "#TKO-002 .call.marked")
    labels, alive = boxes(tab, "#TKO-002 .labels li"), boxes(tab, "#TKO-002 .life.alive")
    assert len(bars) == len(labels) >= 3
    # The stolen lease is drawn as alive where the other client's call was won: that is what the rule is about.
    assert any(one["y"] < marked["y"] < one["y"] + one["h"] for one in alive)
    for bar, label in zip(sorted(bars, key=lambda box: box["y"]), labels, strict=True):
        assert bar["x"] + bar["w"] <= label["x"]
        assert label["y"] <= bar["y"] <= label["y"] + label["h"]
        assert label["x"] + label["w"] <= width
    for above, below in pairwise(labels):
        assert above["y"] + above["h"] <= below["y"]


def test_its_text_can_be_read_on_a_phone(tab, page):
    tab.open(page.as_uri(), 390)
    sizes = "[...document.querySelectorAll('main *')].filter(e => e.children.length == 0 && e.textContent.trim())"
    assert min(tab.ask(f"{sizes}.map(e => parseFloat(getComputedStyle(e).fontSize))")) >= 11


def test_rules_are_filtered_by_verdict_area_and_words(tab, page):
    tab.open(page.as_uri(), 1280)
    everything = len(boxes(tab, ".area li"))
    fill = "(name, value) => { const e = document.getElementById('filter').elements[name]; e.value = value; "
    fill += "e.dispatchEvent(new Event('input', {bubbles: true})) }"
    tab.ask(f"({fill})('area', 'TKO')")
    assert len(boxes(tab, ".area li")) == 4
    tab.ask(f"({fill})('words', 'tko live')")
    assert len(boxes(tab, ".area li")) == 1
    tab.ask(f"({fill})('words', 'nothing like it')")
    assert boxes(tab, ".area li") == []
    assert boxes(tab, "#nothing")
    tab.ask(f"({fill})('words', '')")
    tab.ask(f"({fill})('area', '')")
    assert len(boxes(tab, ".area li")) == everything
    tab.ask("document.querySelector('[name=outcome][value=pass]').click()")
    assert 0 < len(boxes(tab, ".area li")) < everything
    tab.ask("document.querySelector('[name=fold]').click()")
    assert boxes(tab, ".area li") == []
    assert tab.errors() == []


def test_without_scripts_everything_is_there_but_the_filter(tab, page):
    tab.open(page.as_uri(), 1280, scripts=False)
    assert boxes(tab, "#filter") == []
    assert boxes(tab, "#TKO-002 .call.marked")
    rules = len(boxes(tab, ".area li"))
    tab.open(page.as_uri(), 1280)
    assert len(boxes(tab, ".area li")) == rules
    assert boxes(tab, "#filter")


def test_it_prints(tab, page):
    tab.open(page.as_uri(), 1280)
    tab.call("Emulation.setEmulatedMedia", media="print")
    try:
        assert boxes(tab, "#filter") == []
        assert boxes(tab, "#TKO-002 .call.marked")
    finally:
        tab.call("Emulation.setEmulatedMedia", media="")
    assert base64.b64decode(tab.call("Page.printToPDF")["data"]).startswith(b"%PDF")


def test_a_broken_page_would_be_noticed(tab, tmp_path):
    (tmp_path / "broken.html").write_text("<script>nothing.here()</script><div style='width: 999px'>x</div>")
    tab.open((tmp_path / "broken.html").as_uri(), 390)
    assert tab.errors()
    assert tab.ask("document.documentElement.scrollWidth") > 390


@pytest.fixture(scope="module")
def crowded(tmp_path_factory):
    """The page of a rule with sixteen clients that all won, and a message that is one long word."""
    held = {"job": "job", "slot": 1, "lease_ms": 400}
    calls = [
        Call(f"c{number}", "claim", {"claim": {**held, "token": f"t{number}"}}, number, 40, {"outcome": "won"})
        for number in range(16)
    ]
    failed = Verdict(rule="CON-001", outcome="fail", reason="x" * 500, calls=tuple(calls))
    document = certificate.write(memory, select(("CON-001",)), [failed], seed=1, filtered=True, seconds=1.0)
    path = tmp_path_factory.mktemp("crowded") / "report.html"
    path.write_text(RENDERERS["report.html"](document, [failed.to_json()]), "utf-8")
    return path


@pytest.mark.parametrize("width", [390, 1280])
def test_beside_many_clients_and_leases_each_answer_can_be_read(tab, crowded, width):
    tab.open(crowded.as_uri(), width)
    assert len(boxes(tab, ".call")) == len(boxes(tab, ".labels li")) == 16
    assert len(boxes(tab, ".life.alive")) == 6
    lines = "[...document.querySelectorAll('.labels .line:not(.asked), .labels .answer')]"
    assert tab.ask(f"{lines}.filter(e => e.scrollWidth > e.clientWidth).map(e => e.textContent)") == []
    bars = sorted(boxes(tab, ".call"), key=lambda box: box["x"])
    assert all(left["x"] + left["w"] < right["x"] for left, right in pairwise(bars))


@pytest.mark.parametrize("width", [390, 1280])
def test_a_long_message_is_wrapped(tab, crowded, width):
    tab.open(crowded.as_uri(), width)
    assert tab.ask("document.documentElement.scrollWidth") <= width
    assert tab.ask("(e => e.scrollWidth <= e.clientWidth)(document.querySelector('.reason'))")
