"""Which values a text states, and in how many ways one value can be written."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.grounding.values import ValueSource, values_of

SOURCE = (
    "The budget is 4,500 euros until 2026-12-01, with 3.5 % left. Ticket OPS-4411 is about proxy/core/plan.py:12, see "
    "https://example.org/a/b?c=1. We meet at 14:30 in room 4711 for the 2nd time; three people come. v1.2.3 has 2k "
    "users."
)


@pytest.mark.parametrize(
    "statement",
    [
        "4500 euros",
        "4.500 Euro",
        "$4500",
        "December 1, 2026",
        "1 December 2026",
        "01.12.2026",
        "1. Dezember",
        "3,5 %",
        "3.50%",
        "OPS-4411",
        "ops-4411",
        "`plan.py`",
        "core/plan.py",
        "./proxy/core/plan.py line 12",
        "proxy/core/plan.py:12",
        "https://example.org/a/b?c=1",
        "(14:30)",
        "room 4711",
        "2 times",
        "3 people",
        "version v1.2.3",
        "2000 users",
        "no value, e.g. and/or i.e. 'nothing'",
        "1. First item\n2. Second item",
    ],
)
def test_a_value_that_was_stated_is_found_however_it_is_written(statement: str) -> None:
    """Separators, units, the order of a date, letter case and a part of a path make no other value."""
    source = ValueSource(SOURCE)
    assert [value.text for value in values_of(statement) if not source.has(value)] == []


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("5400 euros", "number"),
        ("2 December 2026", "number"),
        ("December 1, 2027", "number"),
        ("at 15:30", "number"),
        ("450", "number"),
        ("OPS-4412", "name"),
        ("proxy/core/plans.py", "name"),
        ("planner.py", "name"),
        ("https://example.com/a", "name"),
        ("v1.2.4", "name"),
        ("10.0.0.1", "name"),
        ("max_tokens", "name"),
        ("ana@example.org", "name"),
    ],
)
def test_a_value_that_stands_nowhere_is_not_found(statement: str, kind: str) -> None:
    """Nor is one whose digits are a part of another."""
    source = ValueSource(SOURCE)
    assert [value.kind for value in values_of(statement) if not source.has(value)] == [kind]


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=300))
def test_every_text_has_its_own_values(text: str) -> None:
    """Whatever it consists of."""
    source = ValueSource(text)
    assert all(source.has(value) for value in values_of(text))


@pytest.mark.parametrize("piece", ["1.", "1,", "a/", "a_", "@", "-1", "1 jan ", "x=1;", "'", "1'", "/\\", "0x", "１"])
def test_no_text_makes_the_reading_slow(piece: str) -> None:
    """The suite's own time limit is a hundred times what a linear reading needs."""
    text = piece * (200_000 // len(piece))
    ValueSource(text).has(next(values_of("7 x"), next(values_of("7"))))
    list(values_of(text))
