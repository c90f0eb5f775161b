"""The exact text of an earlier message: every byte of it can be read, in parts of any size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.histories import message
from tidemark.core.recall.passage import (
    MessagePassage,
    Range,
    handle_of,
    line_count,
    message_with,
    passage_of,
    read_range,
    shortened,
)

TEXTS = st.text(st.sampled_from("aé漢😀 \n\r\t\x0b\u2028{}"), max_size=200) | st.text(max_size=200)
SIZES = st.integers(1, 300)


@given(TEXTS)
def test_without_a_range_all_of_a_text_comes(text: str) -> None:
    """An empty one has nothing to give."""
    whole = passage_of(text, None)
    assert (whole.text if whole else "") == text


@given(TEXTS.filter(bool), SIZES)
def test_the_lines_of_a_text_add_up_to_it(text: str, step: int) -> None:
    """In order and without a gap, and only a line feed ends one; after the last one comes nothing."""
    pieces: list[MessagePassage] = []
    while (piece := passage_of(text, Range("lines", len(pieces) * step + 1, (len(pieces) + 1) * step))) is not None:
        pieces.append(piece)
    assert "".join(piece.text for piece in pieces) == text
    assert line_count(text) == text.count("\n") + (not text.endswith("\n"))
    assert all("\n" not in piece.text[:-1] for piece in pieces if step == 1)
    assert {piece.total for piece in pieces} == {line_count(text)}


@given(TEXTS.filter(bool), SIZES)
def test_the_bytes_of_a_text_add_up_to_it(text: str, step: int) -> None:
    """Each part begins after the last byte of the one before, and divides no character, however small it is."""
    data, place, parts = text.encode(), 1, []
    while (piece := passage_of(text, Range("bytes", place, place + step - 1))) is not None:
        assert piece.range.first == place
        parts.append(piece.text)
        place = piece.range.last + 1
    assert "".join(parts) == text
    assert place == len(data) + 1


@given(TEXTS.filter(bool), SIZES, st.none() | st.builds(Range, st.sampled_from(["lines", "bytes"]), SIZES, SIZES))
def test_a_shortened_passage_is_the_beginning_of_it(text: str, size: int, part: Range | None) -> None:
    """It says what it is: asking for just that gives the same."""
    passage = passage_of(text, part)
    if passage is None:
        return
    shorter = shortened(text, passage, size)
    assert shorter is not None
    assert passage.text.startswith(shorter.text)
    assert 0 < len(shorter.text) <= max(size, 1)
    assert passage_of(text, shorter.range) == shorter


@given(TEXTS.filter(bool), st.data())
def test_no_range_within_a_text_is_empty(text: str, data: st.DataObject) -> None:
    """One within a character gives all of it."""
    size = len(text.encode())
    first = data.draw(st.integers(1, size))
    last = data.draw(st.integers(first, size + 5))
    piece = passage_of(text, Range("bytes", first, last))
    assert piece is not None
    assert piece.text
    assert piece.text.encode() == text.encode()[piece.range.first - 1 : piece.range.last]
    assert passage_of(text, Range("bytes", size + 1, size + 1)) is None


@pytest.mark.parametrize("mark", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\r"])
def test_only_a_line_feed_ends_a_line(mark: str) -> None:
    """As for the tools that number the lines of a file; a carriage return stays with its line."""
    passage = passage_of(f"a{mark}b\r\nc", Range("lines", 1, 1))
    assert passage == MessagePassage(f"a{mark}b\r\n", Range("lines", 1, 1), 2)


def test_nothing_fits_in_no_space() -> None:
    """The model is told so."""
    passage = passage_of("one line", None)
    assert passage is not None
    assert shortened("one line", passage, 0) is None


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("lines 1-80", Range("lines", 1, 80)),
        (" Line 7 - 7 ", Range("lines", 7, 7)),
        ("bytes 100 to 4000", Range("bytes", 100, 4000)),
        ("lines 5", Range("lines", 5, 5)),
        ("lines 1\u201380", Range("lines", 1, 80)),
        ("lines: 1-80", Range("lines", 1, 80)),
        ("lines 1:80", Range("lines", 1, 80)),
        ("lines 0-3", None),
        ("lines 5-3", None),
        ("5-9", None),
        ("", None),
        ("lines 1-80 of it", None),
    ],
)
def test_a_range_has_a_unit_and_one_or_two_ends(text: str, part: Range | None) -> None:
    """Models write it in more ways than one."""
    assert read_range(text) == part


@given(st.text())
def test_any_text_is_a_range_or_none(text: str) -> None:
    """A model may write anything."""
    part = read_range(text)
    assert part is None or 0 < part.first <= part.last


def test_a_handle_leads_to_its_message_whoever_writes_it() -> None:
    """In capitals or with a blank, too; the newest of equal messages is meant."""
    messages = [message(role="user", content=text) for text in ("a", "b", "a")]
    assert message_with(f" {handle_of(messages[1]).upper()} ", messages) is messages[1]
    assert message_with(handle_of(messages[0]), messages) is messages[2]
    assert message_with("m00000000", messages) is None
