"""The pages for users are short enough to finish, and say ``if`` for a condition."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, name_of, prose_of

MOST_WORDS = 45_000
"""Of all pages in ``docs/`` together, without the decisions."""
MOST_WORDS_OF_SHORT_PAGES = 21_000
MOST_WHERE = 2.0
"""For each 1,000 words of a page."""

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


def share_of_where(pages: list[Path]) -> float:
    """How often ``where`` stands in the prose of pages, for each 1,000 words of it."""
    prose = " ".join(prose_of(page) for page in pages)
    return 1000 * len(re.findall(r"\bwhere\b", prose, re.IGNORECASE)) / len(prose.split())


def test_the_shortened_pages_stay_short() -> None:
    """What is added to one is taken away from another."""
    assert words_in(SHORT_PAGES) <= MOST_WORDS_OF_SHORT_PAGES


@pytest.mark.parametrize("page", SHORT_PAGES, ids=name_of)
def test_a_shortened_page_says_if_for_a_condition(page: Path) -> None:
    """``where`` is for places."""
    assert share_of_where([page]) <= MOST_WHERE


def test_the_decisions_say_if_for_a_condition() -> None:
    """All of them together, since each is short."""
    assert share_of_where(DECISIONS) <= MOST_WHERE


def test_all_pages_together_can_be_finished() -> None:
    """A newcomer reads them in a day."""
    assert words_in(PAGES) <= MOST_WORDS
    assert share_of_where(PAGES) <= MOST_WHERE
