"""Header lines: which of them are for one connection only, which hold a key, and what none of them holds.

Both edges ask: ``http/`` and ``server/connection.py`` for the client's lines, ``upstream/`` for those of the answer.
"""

from __future__ import annotations

from collections.abc import Iterable

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""RFC 9110, section 7.6.1, with those of RFC 2616, section 13.5.1, that are still met."""
NOT_SENT = HOP_BY_HOP | {b"host", b"content-length", b"accept-encoding", b"expect"}
"""What a request does not take along: the next hop's client writes its own."""
KEYS = frozenset({b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key"})
"""Where a provider's key stands: OpenAI's, Anthropic's, Azure's and Google's own."""
CONTROLS = bytes([*range(9), *range(10, 32), 127])
"""What no header line holds (RFC 9110, section 5.5): a line's end within a value would begin a line of its own."""


def end_to_end(
    headers: Iterable[tuple[bytes, bytes]], dropped: frozenset[bytes] = HOP_BY_HOP
) -> list[tuple[bytes, bytes]]:
    """The lines that are not for one hop only: in order, names in lower case.

    :param dropped: those of one hop, and whatever else is to be left out
    """
    kept: list[tuple[bytes, bytes]] = []
    named: set[bytes] = set()
    for written, value in headers:
        name = written.lower()
        if name not in dropped:
            kept.append((name, value))
        elif name == b"connection":
            named.update(token.strip().lower() for token in value.split(b","))
    if named - dropped:
        return [line for line in kept if line[0] not in named]
    return kept
