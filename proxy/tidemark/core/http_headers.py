"""Header lines: which are for one connection only, which carry a key, which bytes are forbidden, who the client is.

``server/`` checks the client's lines with it, and ``upstream/`` those of requests and replies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

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
"""RFC 9110, section 7.6.1, with those of RFC 2616, section 13.5.1, that are still in use."""
NOT_SENT = (
    HOP_BY_HOP
    | {b"host", b"content-length", b"accept-encoding", b"content-encoding", b"expect"}
    | {
        b"x-http-method",
        b"x-http-method-override",
        b"x-method-override",
    }
)
"""Headers that Tidemark does not forward with a request. Its HTTP client writes most of them itself. The others would
make it another request than the one that was let through."""
KEYS = frozenset({b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key"})
"""Headers that carry a provider's key: OpenAI's, Anthropic's, Azure's and Google's own."""
CONTROLS = bytes([*range(9), *range(10, 32), 127])
"""Bytes that no header line may contain (RFC 9110, section 5.5): a line end inside a value begins another line."""
USER_AGENT = b"user-agent"
MAX_PROGRAM_CHARACTERS = 100
REMEMBERED_AGENTS = 1024
"""Values of ``User-Agent`` that are read once: most requests have those of the ones before."""
_PROGRAM = re.compile(r"[^\s(;,\x00-\x1f\x7f-\x9f]+(?: \d[^\s(;,\x00-\x1f\x7f-\x9f]*)?")


@lru_cache(REMEMBERED_AGENTS)
def program_of(agent: bytes) -> str:
    """Return a program's name and version of a ``User-Agent``: its first product (RFC 9110, section 10.1.5)."""
    match = _PROGRAM.match(agent[: 2 * MAX_PROGRAM_CHARACTERS].decode("latin-1").strip())
    return match[0][:MAX_PROGRAM_CHARACTERS] if match else ""


def end_to_end(
    headers: Iterable[tuple[bytes, bytes]], dropped: frozenset[bytes] = HOP_BY_HOP
) -> list[tuple[bytes, bytes]]:
    """Return the lines that are not for one hop only, in order, with names in lower case.

    :param dropped: names to leave out: those of one hop, and others that the caller adds
    """
    lines: list[tuple[bytes, bytes]] = []
    listed_names: set[bytes] = set()
    for original_name, value in headers:
        name = original_name.lower()
        if name not in dropped:
            lines.append((name, value))
        elif name == b"connection":
            listed_names.update(token.strip().lower() for token in value.split(b","))
    if listed_names - dropped:
        return [line for line in lines if line[0] not in listed_names]
    return lines
