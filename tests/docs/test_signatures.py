"""The Python of the pages that is there to be read agrees with the code; all other Python of the pages is run."""

import ast
import inspect
import re
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import fields
from types import ModuleType, SimpleNamespace
from typing import Protocol

import pytest
import tenure
from tenure import decision, model, protocol, scheduler
from tenure.job import DEFAULTS

from .test_blocks import PAGES, ROOT, blocks, text

ELSEWHERE = {
    "conformance/README.md": "tests/docs/test_signatures.py",
    "docs/backends.md": "tests/backends/test_docs.py",
    "docs/certify.md": "tests/conformance/test_example.py",
    "docs/conformance-mutants.md": "tests/docs/test_signatures.py",
    "docs/conformance.md": "tests/docs/test_signatures.py",
    "docs/fencing.md": "tests/docs/test_quotes.py",
    "docs/protocol.md": "tests/docs/test_signatures.py",
    "docs/schedules.md": "tests/core/test_schedule.py",
    "docs/testing.md": "tests/core/test_testing.py",
    "docs/tutorial.md": "tests/docs/test_tutorial.py",
    "docs/where.md": "tests/e2e/test_examples.py",
}
"""Pages whose Python is not run from top to bottom, and what looks after them."""


def test_the_python_of_each_page_has_a_test():
    folders = (".", "core", "backends/*", "conformance", "docs", "docs/examples/*")
    pages = {str(page.relative_to(ROOT)) for folder in folders for page in ROOT.glob(f"{folder}/*.md")}
    assert {page for page in pages if blocks(page)} == set(PAGES) | ELSEWHERE.keys()
    for page, test in ELSEWHERE.items():
        assert page.rpartition("/")[2] in (ROOT / test).read_text("utf-8")


# docs/protocol.md


def of_protocol(beginning):
    (block,) = [block for block in blocks("docs/protocol.md") if block.startswith(beginning)]
    return block


def typed(block):
    """The classes that a block defines, with the words of the protocol in scope."""
    names = {**vars(model), "Protocol": Protocol, "Sequence": Sequence, "AsyncIterator": AsyncIterator}
    exec(block, names)
    return names


def signatures(cls):
    return {
        name: (list(inspect.signature(call).parameters), inspect.iscoroutinefunction(call))
        for name, call in vars(cls).items()
        if inspect.isfunction(call) and not name.startswith("_")
    }


@pytest.mark.parametrize("name", ["ClaimOnlyBackend", "LeaseBackend", "Hints"])
def test_a_backend_of_the_protocol_has_the_methods_that_the_page_shows(name):
    block = of_protocol("class Hints" if name == "Hints" else "class ClaimOnlyBackend")
    shown = signatures(typed(block)[name])
    assert shown
    assert shown == {method: signatures(getattr(protocol, name))[method] for method in shown}


def test_the_records_of_the_protocol_have_the_fields_that_the_page_shows():
    block = of_protocol("Claim(")
    shown = {name: re.findall(r"(\w+)(?==|,|$)", words) for name, words in re.findall(r"^(\w+)\(([^)]*)", block, re.M)}
    assert shown.keys() >= {
        "Claim",
        "ClaimResult",
        "LostAttempt",
        "ActiveRuns",
        "ActiveRun",
        "RunResult",
        "Capabilities",
    }
    for name, words in shown.items():
        there = [field.name for field in fields(getattr(model, name))]
        assert [word for word in words if word in there] == there, name


def test_the_calls_of_the_protocol_s_last_section_are_those_of_the_scheduler():
    tree = ast.parse(of_protocol("from tenure import"), mode="exec", type_comments=False)
    ran = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    called = {node.attr for node in ran if isinstance(node.value, ast.Name) and node.value.id == "scheduler"}
    assert called
    assert called <= set(dir(scheduler.Scheduler))
    (options,) = [node.keywords for node in ast.walk(tree) if isinstance(node, ast.Call) and len(node.keywords) > 5]
    assert {option.arg: ast.literal_eval(option.value) for option in options} == DEFAULTS
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert {name.name for name in node.names} <= set(tenure.__all__)


# docs/backends.md, whose other examples are run beside the backends


def test_a_scheduler_takes_a_url_or_a_backend():
    names = {}
    exec(blocks("docs/backends.md")[0], names)
    assert isinstance(names["scheduler"], scheduler.Scheduler)


# docs/schedules.md, whose other examples are doctests


def test_a_schedule_of_one_s_own_is_one():
    (block,) = blocks("docs/schedules.md")
    own = scheduler.Scheduler("memory://")
    names = {"scheduler": own, "open_the_sluice": lambda: None}
    exec(block, names)
    assert isinstance(names["Tides"](), tenure.Schedule)
    assert [job.name for job in own.jobs] == ["sluice"]


# The conformance suite's pages


@pytest.mark.parametrize("page", ["conformance/README.md", "docs/conformance.md"])
def test_the_targets_that_are_shown_are_targets(page, monkeypatch):
    opened = []
    mine = ModuleType("my_backend")
    mine.MyBackend = lambda url, namespace: opened.append((url, namespace))
    monkeypatch.setitem(sys.modules, "my_backend", mine)
    for block in blocks(page):
        names = {}
        exec(compile(block, page, "exec"), names)
        assert names["TARGET"].name == "mine"
        names["TARGET"].open("mine://localhost", "a namespace")
        assert opened.pop() == ("mine://localhost", "a namespace")


def test_the_clause_that_the_mutants_page_breaks_is_in_the_decision():
    broken = []
    (block,) = blocks("docs/conformance-mutants.md")
    exec(
        block,
        {"decides": lambda name, defect, breaks, *edits: broken.append(SimpleNamespace(breaks=breaks, edits=edits))},
    )
    (mutant,) = broken
    assert f'<a id="{mutant.breaks}">' in text("docs/protocol.md")
    ((clause, _),) = mutant.edits
    assert clause in inspect.getsource(decision)
