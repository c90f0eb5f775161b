"""Header lines: what one connection needs stays on it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.http_headers import HOP_BY_HOP, NOT_SENT, end_to_end

NAMES = st.sampled_from([b"X-A", b"x-b", b"Connection", b"TE", b"Host", b"Keep-Alive", b"authorization"])
VALUES = st.sampled_from([b"", b"close", b"X-A", b"x-b , TE,,connection", b"authorization,x-a", b"Host"])


def test_a_header_that_names_another_method_is_not_sent() -> None:
    """The request that goes out is the one that was let through."""
    names = ("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override")
    assert end_to_end([(name.encode(), b"DELETE") for name in names], NOT_SENT) == []


def test_what_is_for_one_hop_is_left_out_and_the_rest_keeps_its_order() -> None:
    """RFC 9110, section 7.6.1: the listed names and those that ``Connection`` names, whatever their case."""
    lines = [
        (b"X-First", b"1"),
        (b"Connection", b"keep-alive, X-Own"),
        (b"x-own", b"secret"),
        (b"Proxy-Authorization", b"Basic x"),
        (b"Set-Cookie", b"a=1"),
        (b"Set-Cookie", b"b=2"),
        (b"TE", b"trailers"),
    ]
    assert end_to_end(lines) == [(b"x-first", b"1"), (b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")]


@given(st.lists(st.tuples(NAMES, VALUES), max_size=6), st.sampled_from([HOP_BY_HOP, NOT_SENT]))
def test_a_line_passes_whose_name_is_neither_dropped_nor_named_by_connection(
    headers: list[tuple[bytes, bytes]], dropped: frozenset[bytes]
) -> None:
    """Wherever the line ``Connection`` stands, and however many there are."""
    lines = [(name.lower(), value) for name, value in headers]
    declared = [value for name, value in lines if name == b"connection"]
    gone = dropped | {token.strip().lower() for value in declared for token in value.split(b",")}
    assert end_to_end(headers, dropped) == [(name, value) for name, value in lines if name not in gone]
