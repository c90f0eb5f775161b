"""Cursors: opaque, and refused when they are none of ours."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.cursors import cursor_of, place_of
from tidemark.core.errors import InvalidRequest


@given(st.integers(), st.text())
def test_a_place_comes_back(number: int, text: str) -> None:
    """As it was, through a text that any URL takes."""
    cursor = cursor_of(number, text)
    assert place_of(cursor, (int, str)) == (number, text)
    assert cursor.isascii()
    assert cursor.replace("-", "").replace("_", "").isalnum()


def refused(cursor: str) -> str | None:
    """The parameter that is at fault; None where none is."""
    try:
        place_of(cursor, (int,))
    except InvalidRequest as told:
        return told.param
    return None


@given(st.text(max_size=60))
def test_anything_else_is_refused(cursor: str) -> None:
    """With the parameter's name."""
    assert refused(cursor) in (None, "cursor")


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_no_time_is_endless(number: float) -> None:
    """JSON's reader takes such, and the store does not."""
    with pytest.raises(InvalidRequest):
        place_of(cursor_of(number), (float,))


@pytest.mark.parametrize("place", [(True,), ("1",), (1, 2), (1.5,)])
def test_a_cursor_of_another_list_is_refused(place: tuple[float | str, ...]) -> None:
    """By its types."""
    with pytest.raises(InvalidRequest):
        place_of(cursor_of(*place), (int,))
