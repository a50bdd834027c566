"""Links between the pages of this repository resolve, down to the heading."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = [".", "core", "backends/*", "conformance", "docs", "docs/examples/*"]
PAGES = sorted(page.relative_to(ROOT) for folder in FOLDERS for page in ROOT.glob(f"{folder}/*.md"))


def prose(page):
    return re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors(page):
    """Those given in the page, and GitHub's for its headings."""
    text = prose(page)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'<a id="([^"]+)">', text))


def links(page):
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)) if not re.match(r"[a-z]+:", link)]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_the_links_of_a_page_resolve(page):
    broken = []
    for link in links(ROOT / page):
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


def test_the_index_leads_to_every_page():
    linked = set(links(ROOT / "docs/README.md"))
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"} <= {
        link.split("#")[0] for link in linked
    }
