"""The two summaries that people can judge are what ``extractive`` writes today."""

from __future__ import annotations

from benchmarks.fidelity.summaries import both_summaries
from tests.docs.pages import ROOT


def test_the_pages_summaries_are_those_that_are_written() -> None:
    """In full, and their end stands on the page."""
    text = (ROOT / "docs" / "summaries.txt").read_text(encoding="utf-8")
    assert text == both_summaries(), "python -m benchmarks.fidelity.summaries > docs/summaries.txt"
    page = (ROOT / "docs" / "fidelity.md").read_text(encoding="utf-8")
    end = page.partition("## Two summaries")[2].partition("```text\n")[2].partition("```")[0]
    assert end in text
