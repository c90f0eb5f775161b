"""Which header lines pass: to the upstream, back from it, and out of litellm's hands.

Beside both lanes; pure. A configured credential takes the place of every one that the client sent; what one connection
needs has stayed on it already (``core/http_headers.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from proxy.core.http_headers import KEYS
from proxy.core.ports import Caller, Headers, Route

KEPT_HEADERS = frozenset({"request-id", "retry-after", "retry-after-ms", "x-request-id"})
FRAMING = frozenset({b"content-length", b"transfer-encoding"})
KEPT_ROUTES = 256
"""Of configured routes; a client can choose among them only."""
KEPT_PREFIXES = ("x-ratelimit-", "anthropic-ratelimit-")


def outgoing(route: Route, caller: Caller) -> list[tuple[bytes, bytes]]:
    """The header lines that go upstream as they are: the client's in order, then what is configured in their place."""
    replaced, own = _configured(tuple(route.headers), route.api_key)
    return [*(line for line in caller.headers if line[0] not in replaced), *own]


@lru_cache(maxsize=KEPT_ROUTES)
def _configured(
    headers: tuple[tuple[bytes, bytes], ...], api_key: str | None
) -> tuple[frozenset[bytes], tuple[tuple[bytes, bytes], ...]]:
    """Which of a client's lines do not pass, and the lines of every request.

    How long a body is and how it is framed the HTTP client says itself, whatever is configured.
    """
    own = [(name.lower(), value) for name, value in headers if name.lower() not in FRAMING]
    if api_key is not None:
        own.append((b"authorization", b"Bearer " + api_key.encode()))
    replaced = frozenset(name for name, _ in own)
    return replaced if api_key is None else replaced | KEYS, (*own, (b"accept-encoding", b"identity"))


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
