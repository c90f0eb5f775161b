"""``docs/adr/``: the first line under the title of each decision says whether it holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, name_of

DECISIONS = sorted((ROOT / "docs" / "adr").glob("*.md"))
STATUS = re.compile(r"Holds\.$|Holds(?:;|,| for) .+|Withdrawn(?::| by) .+|Replaced by .+")
"""Whole, with a change, in part, or no more."""


@pytest.mark.parametrize("page", DECISIONS, ids=name_of)
def test_a_decision_says_first_whether_it_holds(page: Path) -> None:
    """A reader need not find out from the code."""
    title, empty, status, *_ = page.read_text(encoding="utf-8").splitlines()
    assert title.startswith(f"# {page.name[:4]}: ")
    assert empty == ""
    assert STATUS.fullmatch(status), status


def test_decisions_are_numbered_without_a_gap() -> None:
    """One that is withdrawn keeps its number and its page."""
    assert [page.name[:4] for page in DECISIONS] == [f"{number:04}" for number in range(1, len(DECISIONS) + 1)]
