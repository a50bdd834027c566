"""The commands that the pages show are commands, with options that there are."""

import re
import shlex
from pathlib import Path

import click
import pytest
from tenure.cli.commands import tenure
from tenure_conformance.cli import main as tenure_conformance

ROOT = Path(__file__).parents[2]
PROGRAMS = {"tenure": tenure, "tenure-conformance": tenure_conformance}
FOLDERS = (".", "core", "backends/*", "conformance", "docs", "docs/examples/*")
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)


def shown():
    """The command lines of all pages, without what follows a pipe or is said beside them."""
    for page in sorted(page for folder in FOLDERS for page in ROOT.glob(f"{folder}/*.md")):
        for block in CONSOLE.findall(page.read_text("utf-8")):
            for line in re.findall(r"^\$ (.*)$", block, re.MULTILINE):
                words = shlex.split(re.split(r" [|>&]+ ", line)[0], comments=True)
                if words and words[0] in PROGRAMS:
                    yield str(page.relative_to(ROOT)), words


def inline():
    """Those of the table of docs/cli.md."""
    for line in re.findall(r"^\| `(tenure [^`…]*)` \|", (ROOT / "docs/cli.md").read_text("utf-8"), re.MULTILINE):
        yield "docs/cli.md", shlex.split(line)


@pytest.mark.parametrize(("page", "words"), [*shown(), *inline()])
def test_a_command_can_be_typed_as_it_is_shown(page, words):
    program, name, *arguments = words
    command = PROGRAMS[program].commands[name]
    with click.Context(PROGRAMS[program], info_name=program) as group:
        command.make_context(name, arguments, parent=group).close()


def test_there_are_commands_to_look_at():
    assert {words[0] for _, words in shown()} == PROGRAMS.keys()
    assert len(list(inline())) > 4
