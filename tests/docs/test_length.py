"""The pages for users are short enough to finish; they and the docstrings say ``if`` for a condition."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.language import docstrings
from tests.docs.pages import ROOT, name_of, prose_of

MOST_WORDS = 45_000
"""Of all pages in ``docs/`` together, without the decisions."""
MOST_WORDS_OF_SHORT_PAGES = 21_000
MOST_WHERE = 2.0
"""For each 1,000 words of a page, or of all docstrings together."""

PAGES = sorted((ROOT / "docs").glob("*.md"))
SHORT_PAGES = [
    ROOT / "docs" / f"{name}.md"
    for name in (
        "clients",
        "compaction",
        "configuration",
        "counting",
        "dependencies",
        "features",
        "glossary",
        "wire",
    )
]
"""The pages on compaction, configuration, counting and the wire, and those beside them."""
DECISIONS = sorted((ROOT / "docs" / "adr").glob("*.md"))


def words_in(pages: list[Path]) -> int:
    """As ``wc`` counts them, tables and snippets included."""
    return sum(len(page.read_text(encoding="utf-8").split()) for page in pages)


def share_in_pages(pages: list[Path]) -> float:
    """The share of ``where`` in the prose of pages."""
    return share_of_where(" ".join(prose_of(page) for page in pages))


def share_of_where(prose: str) -> float:
    """How often ``where`` stands in a text, for each 1,000 words of it."""
    return 1000 * len(re.findall(r"\bwhere\b", prose, re.IGNORECASE)) / len(prose.split())


def test_the_shortened_pages_stay_short() -> None:
    """What is added to one is taken away from another."""
    assert words_in(SHORT_PAGES) <= MOST_WORDS_OF_SHORT_PAGES


@pytest.mark.parametrize("page", SHORT_PAGES, ids=name_of)
def test_a_shortened_page_says_if_for_a_condition(page: Path) -> None:
    """``where`` is for places."""
    assert share_in_pages([page]) <= MOST_WHERE


def test_the_decisions_say_if_for_a_condition() -> None:
    """All of them together, since each is short."""
    assert share_in_pages(DECISIONS) <= MOST_WHERE


def test_the_docstrings_say_if_for_a_condition() -> None:
    """Those of all of ``proxy/``: a few packages speak of places more than others."""
    assert share_of_where(docstrings(ROOT / "proxy")) <= MOST_WHERE


def test_all_pages_together_can_be_finished() -> None:
    """A newcomer reads them in a day."""
    assert words_in(PAGES) <= MOST_WORDS
    assert share_in_pages(PAGES) <= MOST_WHERE
