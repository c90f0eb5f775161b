"""Every intended difference between an upstream and Tidemark before it, by name, with its reason.

What is not listed here must be equal: status, headers, and the bytes or events of a body, in both directions.
"""

from __future__ import annotations

from collections.abc import Mapping

RESPONSE_HEADERS: Mapping[str, str] = {
    "x-tidemark-*": "the report of what was done, on answers to requests that Tidemark understands",
    "transfer-encoding": "of one connection (RFC 9112, 6.1): each server frames its own",
    "connection": "of one connection (RFC 9110, 7.6.1)",
    "content-length": "an event or a header of ours may follow; the body is chunked instead",
}
"""Differences in the headers of an answer."""

REQUEST_HEADERS: Mapping[str, str] = {
    "host": "names the server that is asked (RFC 9110, 7.2)",
    "connection": "of one connection (RFC 9110, 7.6.1)",
    "keep-alive": "the same",
    "accept-encoding": "Tidemark reads answers for the history, so it asks for plain ones",
    "content-length": "written anew for the body that goes out",
    "transfer-encoding": "of one connection (RFC 9112, 6.1)",
    "x-tidemark-*": "controls for Tidemark alone",
    "x-api-key": "reaches an upstream as Authorization, too: servers of OpenAI's format read that one only",
}
"""Differences in the headers of a request. ``expected_upstream`` keeps the last one to what it says."""

BODIES: Mapping[str, str] = {
    "an end too early": "a stream without its last event gets its dialect's error event, lest it be taken as whole",
    "POST /v1/responses/input_tokens": "OpenAI's own address is asked; else Tidemark counts (docs/wire.md)",
    "a bridge": "an upstream of chat completions alone has no bytes of another dialect; so meanings are compared",
}
"""Differences in bodies. test_early_ends.py and test_bridged.py hold the first and the last to their reason; the second
is tested beside its endpoint."""


def compared(headers: Mapping[str, str], differences: Mapping[str, str]) -> dict[str, str]:
    """The headers that must be equal."""
    return {
        name: value
        for name, value in headers.items()
        if name not in differences and not (name.startswith("x-tidemark-") and "x-tidemark-*" in differences)
    }


def expected_upstream(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that an upstream gets from Tidemark, by those that it would get from the client."""
    expected = compared(headers, {name: reason for name, reason in REQUEST_HEADERS.items() if name != "x-api-key"})
    if "x-api-key" in expected:
        expected.setdefault("authorization", f"Bearer {expected['x-api-key']}")
    return expected
