"""Links between the pages of the repository lead to files and headings that are there."""

import re
from pathlib import Path

import pytest
from flavours import FLAVOUR

ROOT = Path(__file__).parents[1]
PAGES = [
    *ROOT.glob("*.md"),
    *ROOT.glob("benchmarks/*.md"),
    *ROOT.glob("docs/*.md"),
    *ROOT.glob("notebooks/[0-9]*.py"),
]
FENCED = re.compile(r"^(```+|:::+).*?^\1$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)

pytestmark = pytest.mark.skipif(FLAVOUR != "tensorflow", reason="once is enough")


def links(page):
    return LINK.findall(FENCED.sub("", page.read_text()))


def anchors(page):
    """Of its headings, as GitHub and MyST make them."""
    headings = HEADING.findall(FENCED.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def faults(page):
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue  # another host's
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            yield f"{link}: there is no {target.relative_to(ROOT)}"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            yield f"{link}: {target.name} has no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_of_a_page_lead_somewhere(page):
    assert list(faults(page)) == []


def test_a_link_to_nowhere_is_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A word\n[here](#a-word) [there](#another) [on](https://example.org)\n")
    assert list(faults(page)) == ["#another: page.md has no such heading"]
