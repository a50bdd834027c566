"""What a page shows of a file stands in that file, so that the tests of the file are tests of the page."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
QUOTE = re.compile(r"^<!-- from: (\S+) -->\n```\w+\n(.*?)^```", re.DOTALL | re.MULTILINE)
QUOTES = [(page.name, *quote) for page in sorted(DOCS.glob("*.md")) for quote in QUOTE.findall(page.read_text("utf-8"))]


@pytest.mark.parametrize(("page", "file", "quoted"), QUOTES)
def test_a_quoted_file_says_so(page, file, quoted):
    assert quoted in (DOCS / file).read_text("utf-8")


def test_the_fencing_page_quotes_each_example():
    shown = {file for page, file, _ in QUOTES if page == "fencing.md"}
    assert shown == {f"examples/fencing/{path.name}" for path in (DOCS / "examples/fencing").glob("*_totals.py")}
