"""Which header lines pass: to the upstream, back from it, and out of litellm's hands.

Beside both lanes; pure. What one connection needs stays on it, and a configured credential takes the place of
every one that the client sent.
"""

from __future__ import annotations

from collections.abc import Mapping

from proxy.core.headers import KEYS, NOT_SENT, named_by_connection
from proxy.core.ports import Caller, Headers, Route

KEPT_HEADERS = frozenset({"request-id", "retry-after", "retry-after-ms", "x-request-id"})
KEPT_PREFIXES = ("x-ratelimit-", "anthropic-ratelimit-")


def outgoing(route: Route, caller: Caller) -> list[tuple[str, str]]:
    """The header lines that go upstream: the client's in order, then what is configured in their place."""
    replaced = {name.lower() for name, _ in route.headers} | NOT_SENT | named_by_connection(caller.headers)
    if route.api_key is not None:
        replaced |= KEYS
    lines = [(name, value) for name, value in caller.headers if name not in replaced]
    lines += [(name.lower(), value) for name, value in route.headers]
    if route.api_key is not None:
        lines.append((b"authorization", b"Bearer " + route.api_key.encode()))
    lines.append((b"accept-encoding", b"identity"))
    return [(name.decode("latin-1"), _text(value)) for name, value in lines]


def _text(value: bytes) -> str:
    """A header value as aiohttp wants it: it will write it as UTF-8 again."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def caller_key(caller: Caller) -> str | None:
    """The caller's key, from whichever header its SDK sends it in."""
    sent = {name: value.decode("latin-1").strip() for name, value in reversed(caller.headers)}
    scheme, _, token = sent.get(b"authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return sent.get(b"x-api-key") or sent.get(b"api-key") or sent.get(b"x-goog-api-key") or None


def kept_headers(told: Mapping[str, str]) -> Headers:
    """Of a provider's headers those that a client acts on; its request id under OpenAI's name as well."""
    kept = {
        name.lower(): value
        for name, value in told.items()
        if name.lower() in KEPT_HEADERS or name.lower().startswith(KEPT_PREFIXES)
    }
    if "request-id" in kept:
        kept.setdefault("x-request-id", kept["request-id"])
    return tuple((name.encode(), value.encode()) for name, value in kept.items())
