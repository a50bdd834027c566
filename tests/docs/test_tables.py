"""What the pages list is what the code has: options, defaults, events, methods, commands, versions."""

import ast
import inspect
import re
import tomllib
from dataclasses import fields
from importlib.metadata import entry_points
from pathlib import Path
from typing import get_args

import pytest
import tenure
from tenure.context import Context, Signal, SignalReason
from tenure.demo.worker import OPTIONS
from tenure.events import Event, InterruptReason, SkipReason
from tenure.job import DEFAULTS, JobChoices
from tenure.model import Claim, Mode, Outcome
from tenure.scheduler import Scheduler

ROOT = Path(__file__).parents[2]
PYPROJECTS = sorted([*ROOT.glob("*/pyproject.toml"), *ROOT.glob("backends/*/pyproject.toml")])


def text(page):
    return (ROOT / page).read_text("utf-8")


def rows(page, header):
    """The cells of a table, which is found by the beginning of its header."""
    (table,) = re.findall(rf"^{re.escape(header)}.*\n\|[- |]+\|\n((?:\|.*\n)+)", text(page), re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def code(cell):
    return re.findall(r"`([^`]+)`", cell)


def public(owner):
    return {name for name in dir(owner) if not name.startswith("_")}


# docs/jobs.md


def test_the_options_and_their_defaults():
    table = {
        code(name)[0]: ast.literal_eval(code(default)[0]) for name, default, _ in rows("docs/jobs.md", "| option |")
    }
    assert table == DEFAULTS


def test_what_is_said_only_when_a_job_is_added():
    for choice in JobChoices.__annotations__.keys() - DEFAULTS.keys():
        assert f"`{choice}=" in text("docs/jobs.md")


def test_the_keywords_of_a_scheduler_and_their_defaults():
    parameters = inspect.signature(Scheduler).parameters.values()
    keywords = {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}
    table = {
        code(name)[0]: ast.literal_eval(code(default)[0]) for name, default, _ in rows("docs/jobs.md", "| keyword |")
    }
    assert table == keywords


def test_each_public_name_of_a_scheduler_is_described():
    table = {name for cells in rows("docs/jobs.md", "| method |") for name in re.findall(r"\b\w+\b", cells[0])}
    to_add_jobs = {"every", "cron", "add"}  # the page begins with them
    assert public(Scheduler) - table == to_add_jobs


def test_the_parts_of_a_context():
    table = {name for cells in rows("docs/jobs.md", "| `ctx.` |") for name in code(cells[0])}
    assert table == public(Context)


def test_the_parts_and_reasons_of_a_signal():
    page = text("docs/jobs.md")
    for part in public(Signal) - {"set"}:  # which the scheduler does
        assert f"ctx.signal.{part}" in page
    for reason in get_args(SignalReason):
        assert f'`"{reason}"`' in page


def test_the_modes_of_a_run():
    (cells,) = [cells for cells in rows("docs/jobs.md", "| `ctx.` |") if code(cells[0]) == ["mode"]]
    assert code(cells[1]) == [*get_args(Mode)]


def test_the_events_and_what_they_have():
    common = {field.name for field in fields(Event)}
    table = {tuple(code(cls) + code(kind)): code(also) for cls, kind, also, _ in rows("docs/jobs.md", "| class |")}
    assert table == {
        (cls.__name__, cls.kind): [field.name for field in fields(cls) if field.name not in common]
        for cls in Event.__subclasses__()
    }


def test_what_all_events_have():
    (listed,) = re.findall(r"All have (.*?)\. ", text("docs/jobs.md"), re.DOTALL)
    assert {name for name in code(listed) if name.isidentifier()} - {"datetime"} == public(Event) | {"kind"}


def test_the_reasons_of_events():
    when = {code(cls)[0]: code(cell) for cls, _, _, cell in rows("docs/jobs.md", "| class |")}
    assert when["Skip"] == [*get_args(SkipReason)]
    assert when["Interrupted"] == [*get_args(InterruptReason)]


# The other pages


@pytest.mark.parametrize("page", ["README.md", "docs/cli.md"])
def test_the_demo_s_overlap_rule_is_told_since_it_is_not_the_default(page):
    assert OPTIONS["overlap"] != DEFAULTS["overlap"]
    assert f'`overlap="{OPTIONS["overlap"]}"`' in text(page).partition("## What it guarantees")[0]


def test_the_fields_of_a_claim():
    table = [name for cells in rows("docs/claims.md", "| field |") for name in code(cells[0])]
    assert set(table) | {"instance"} == {field.name for field in fields(Claim)}


def test_the_answers_to_a_claim():
    assert [code(cells[0])[0] for cells in rows("docs/run-lifecycle.md", "| answer |")] == [*get_args(Outcome)]


def test_the_backends_of_the_readme_are_those_there_are():
    schemes = {shown.split("://")[0] for cells in rows("README.md", "| | | |") for shown in code(cells[0])}
    assert {entry.name.partition("+")[0] for entry in entry_points(group="tenure.backends")} <= schemes


def test_the_readme_leads_to_each_certificate():
    led_to = set(re.findall(r"\(conformance/certificates/([\w-]+)/report\.html\)", text("README.md")))
    there = {path.parent.name for path in ROOT.glob("conformance/certificates/*/certificate.json")}
    assert led_to == there


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_the_nox_sessions_that_are_named_exist(page):
    named = set(re.findall(r'nox -s "?(\w+)', text(page)))
    there = set(re.findall(r"^def (\w+)\(session", text("noxfile.py"), re.MULTILINE))
    assert named
    assert named <= there


@pytest.mark.parametrize("page", ["README.md", "core/README.md", "docs/backends.md"])
def test_the_extras_that_are_named_exist(page):
    named = {extra for found in re.findall(r"tenure\[([\w,]+)\]", text(page)) for extra in found.split(",")}
    extras = tomllib.loads(text("core/pyproject.toml"))["project"]["optional-dependencies"]
    assert named <= extras.keys()


def test_the_modules_that_contributing_names_exist():
    named = {name for cells in rows("CONTRIBUTING.md", "| you want to change |") for name in code(cells[1])}
    assert [name for name in sorted(named) if not (ROOT / "core/src/tenure" / name).exists()] == []


def test_no_summary_promises_what_the_readme_denies():
    assert "not exactly once" in text("README.md")
    for path in PYPROJECTS:
        description = tomllib.loads(path.read_text("utf-8"))["project"]["description"]
        assert not re.search(r"\bonce\b|can do nothing", description), path
    assert tenure.__doc__ == tomllib.loads(text("core/pyproject.toml"))["project"]["description"] + "."


def test_one_version_for_all():
    versions = {path.parent.name: tomllib.loads(path.read_text("utf-8"))["project"]["version"] for path in PYPROJECTS}
    assert versions == dict.fromkeys(versions, tenure.__version__)
    assert f"## [{tenure.__version__}]" in text("CHANGELOG.md")
