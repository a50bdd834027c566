"""docs/reference.md names what is public: no more, no less."""

import re
import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
stage = runpy.run_path(str(DOCS / "site/stage.py"), run_name="stage")


def test_the_reference_lists_the_public_names_of_each_module():
    sections = re.split(r"^## `([\w.]+)`$", (DOCS / "reference.md").read_text("utf-8"), flags=re.MULTILINE)
    listed = dict(zip(sections[1::2], sections[2::2], strict=True))
    told = {module: re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) for module, text in listed.items()}
    there = {module: stage["names"](module) for module in stage["MODULES"]}
    assert told == there, "python docs/site/reference.py writes it anew"


def test_the_site_leads_to_the_description_of_each_name():
    linked = stage["linked"]((DOCS / "reference.md").read_text("utf-8"))
    assert "[`Scheduler`](reference/tenure.md#tenure.Scheduler)" in linked
    assert not re.search(r"^\| `", linked, re.MULTILINE)
    assert "::: tenure.Scheduler" in stage["described"]("tenure", "")


def test_a_link_to_a_directory_leads_to_its_page_on_the_site():
    assert "](examples/flock/README.md)" in stage["staged"](Path("docs/backends.md"))


def test_every_page_is_in_the_navigation():
    nav = re.findall(r"(?:- |: )(\S+\.md)$", (DOCS.parent / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert len(nav) == len(set(nav))
    pages = {f"docs/{page.name}" for page in DOCS.glob("*.md")}
    pages |= {f"docs/reference/{module}.md" for module in stage["MODULES"]}
    assert pages <= set(nav)
