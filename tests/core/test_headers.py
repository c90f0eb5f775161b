"""Header lines: what one connection needs stays on it."""

from __future__ import annotations

from proxy.core.headers import end_to_end


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
