"""Header lines: what one connection needs stays on it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.http_headers import HOP_BY_HOP, MAX_PROGRAM_CHARACTERS, NOT_SENT, end_to_end, program_of

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


@pytest.mark.parametrize(
    ("agent", "program"),
    [
        (b"claude-cli/2.1.0 (external, cli)", "claude-cli/2.1.0"),
        (b"OpenAI/Python 1.55.0", "OpenAI/Python 1.55.0"),
        (b"Anthropic/JS 0.70.1", "Anthropic/JS 0.70.1"),
        (b"codex_cli_rs/0.60.1 (Debian 13.0.0; x86_64) xterm", "codex_cli_rs/0.60.1"),
        (b"evil\x9b31m/1 (x)", "evil"),
        (b"a\x7fb/1", "a"),
        (b"\xa0\x01", ""),
        (b"n" * 300, "n" * MAX_PROGRAM_CHARACTERS),
        (b"", ""),
        (b"(nothing)", ""),
    ],
)
def test_a_program_is_named_by_its_first_product(agent: bytes, program: str) -> None:
    """With its version, which some SDKs write behind a space; it is short, and has no control character."""
    assert program_of(agent) == program
