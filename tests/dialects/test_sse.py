"""A stream is cut at the ends of its events only, whatever the network does."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tidemark.dialects.sse import MAX_PENDING_BYTES, WholeEvents

LINES = st.sampled_from([b"data: {}", b": hi", b"event: x", b"id: 7", b"data"])


@given(st.lists(LINES), st.sampled_from([b"\n", b"\r\n", b"\r"]), st.sampled_from([b"", b"data: {", b"d"]), st.data())
def test_no_event_is_changed_delayed_or_cut(
    lines: list[bytes], line_end: bytes, tail: bytes, chance: st.DataObject
) -> None:
    """Wherever the network cuts: the bytes are the same, all events that are over have gone, and no part of another."""
    data = b"".join(line + 2 * line_end for line in lines) + tail
    ends = [0, *itertools.accumulate(len(line + 2 * line_end) for line in lines)]
    cuts = chance.draw(st.sets(st.integers(0, len(data))))
    cutter, gone = WholeEvents(), b""
    for start, end in itertools.pairwise(sorted({0, len(data), *cuts})):
        gone += cutter.feed(data[start:end])
        assert len(gone) >= max(place for place in ends if place <= end)
        # CR LF CR ends an event already, and the LF after it goes by itself
        assert len(gone) in ends or (line_end == b"\r\n" and len(gone) + 1 in ends)
    assert gone + bytes(cutter.pending) == data


def test_what_can_be_no_event_does_not_wait() -> None:
    """HTML, JSON, anything in a stream's place goes on as it comes."""
    cutter = WholeEvents()
    assert cutter.feed(b"<html>") == b"<html>"
    assert cutter.feed(b'{"a": 1}\n{"a"') == b'{"a": 1}\n{"a"'


def test_an_event_without_end_is_not_held_for_ever() -> None:
    """From a size on it is delivered in pieces, all of them."""
    cutter = WholeEvents()
    first = b"data: " + b"x" * MAX_PENDING_BYTES
    assert cutter.feed(first[:-10]) == b""
    assert cutter.feed(first[-10:]) == first
    assert cutter.feed(b"yyy") == b"yyy"
    assert cutter.feed(b"\n\nda") == b"\n\n"
