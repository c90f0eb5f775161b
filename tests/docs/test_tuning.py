"""Tuning, in ``docs/compaction.md``: every setting of compaction is told, and its figures are those of the replay."""

from __future__ import annotations

import pytest
import yaml

from benchmarks.replay import Bill, Planned, own, policies
from benchmarks.shapes import chat
from tests.docs.pages import cells, names_in
from tidemark.config import key_notes

PAGE = "docs/compaction.md"
CHAT = chat()


def figures(bill: Bill) -> list[str]:
    """A bill as a row of the page."""
    return [f"{bill.hit * 100:.1f} %", f"{bill.cost / 1e6:.2f}", str(bill.summaries), str(bill.waits)]


def test_every_setting_of_compaction_is_told_and_no_other() -> None:
    """Both ways."""
    settings = [note.name.removeprefix("compaction.defaults.") for note in key_notes() if "compaction." in note.name]
    assert [row[0].strip("`") for row in cells(PAGE, "key")] == settings
    assert names_in(PAGE, "key") == set(settings)


def test_the_policies_cost_what_the_page_says() -> None:
    """As ``make bench-replay`` prints it."""
    assert cells(PAGE, "policy") == [[policy.name, *figures(policy.replay(CHAT))] for policy in policies()]


@pytest.mark.parametrize("row", cells(PAGE, "setting"), ids=lambda row: str(row[0]))
def test_a_changed_setting_costs_what_the_page_says(row: list[str]) -> None:
    """With all others at their defaults."""
    setting, *told = row
    bill = Planned(setting, *own(**yaml.safe_load(setting.strip("`"))), ahead=True).replay(CHAT)
    assert figures(bill) == told
