"""Every intended difference between an upstream and Tidemark before it, by name, with its reason.

What is not listed here must be equal: status, headers, and the bytes or events of a body, in both directions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

RESPONSE_HEADERS: Mapping[str, str] = {
    "x-tidemark-*": "the report of what was done, on answers to requests that Tidemark understands",
    "transfer-encoding": "of one connection (RFC 9112, 6.1): an answer that is no stream is gathered, not chunked",
    "content-length": "the same; ``is_framed`` says that it is the length of the body",
}
"""Differences in the headers of an answer in a dialect. An answer that is carried has none."""

CONNECTION_HEADERS: Mapping[str, str] = {
    "host": "names the server that is asked (RFC 9110, 7.2)",
    "connection": "of one connection (RFC 9110, 7.6.1)",
    "keep-alive": "the same",
    "te": "the same",
}
"""Differences in the headers of every request."""
REQUEST_HEADERS: Mapping[str, str] = {
    **CONNECTION_HEADERS,
    "accept-encoding": "Tidemark reads answers for the history, so it asks for plain ones",
    "content-length": "a body that came in chunks is read whole and goes out with its length",
    "transfer-encoding": "the same",
    "x-tidemark-*": "controls for Tidemark alone",
}
"""Differences in the headers of a request in a dialect."""

LAST = ("accept-encoding", "content-length", "transfer-encoding")
"""Lines of a request that is carried which come last, in this order. The order of lines with different names means
nothing (RFC 9110, 5.3)."""

BODIES: Mapping[str, str] = {
    "an end too early": "a stream without its last event gets its dialect's error event, lest it be taken as whole",
    "POST /v1/responses/input_tokens": "OpenAI's own address is asked; else Tidemark counts (docs/wire.md)",
    "a bridge": "an upstream of chat completions alone has no bytes of another dialect; so meanings are compared",
}
"""Differences in bodies. test_early_ends.py and test_bridged.py hold the first and the last to their reason; the second
is tested beside its endpoint."""


Lines = Sequence[tuple[str, str]]
"""Header lines, in their order."""


def compared(lines: Lines, differences: Mapping[str, str]) -> list[tuple[str, str]]:
    """The header lines that must be equal, in order and number, too."""
    return [
        (name, value)
        for name, value in lines
        if name not in differences and not (name.startswith("x-tidemark-") and "x-tidemark-*" in differences)
    ]


def expected_upstream(lines: Lines, differences: Mapping[str, str]) -> list[tuple[str, str]]:
    """The header lines that an upstream gets from Tidemark, by those that it would get from the client.

    ``x-api-key`` reaches it as ``authorization``, too, since servers of OpenAI's format read no other one.
    """
    expected = compared(lines, differences)
    named = dict(expected)
    if "x-api-key" in named and "authorization" not in named:
        expected.append(("authorization", f"Bearer {named['x-api-key']}"))
    return sorted(expected, key=lambda line: LAST.index(line[0]) if line[0] in LAST else -1)


def is_framed(lines: Lines, body: bytes) -> bool:
    """Whether a body has its own length or comes in chunks, and not both."""
    framing = [(name, value) for name, value in lines if name in ("content-length", "transfer-encoding")]
    return framing in ([("content-length", str(len(body)))], [("transfer-encoding", "chunked")])
