"""Chooses the header lines that go to the upstream, and those of a provider's answer that litellm hands back.

Both lanes use it; it does no I/O. A configured credential replaces every credential that the client sent. Hop-by-hop
headers are already removed (``core/http_headers.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from tidemark.core.http_headers import KEYS
from tidemark.core.ports import Caller, Headers, Route
from tidemark.core.trace_context import NAMES as TRACE_CONTEXT
from tidemark.upstream.providers import ANTHROPIC_BASE

RETURNED_HEADERS = frozenset(
    {
        "openai-model",
        "openai-processing-ms",
        "openai-version",
        "request-id",
        "retry-after",
        "retry-after-ms",
        "x-request-id",
        "x-should-retry",
    }
)
"""Headers of a provider's answer that a client acts on; an organization may be that of the operator's key."""
RETURNED_PREFIXES = ("x-ratelimit-", "anthropic-ratelimit-")
FRAMING = frozenset({b"content-length", b"transfer-encoding"})
"""Headers that the HTTP client writes itself, whatever is configured."""
ACCEPT_ENCODING = b"accept-encoding"
_PLAIN = (ACCEPT_ENCODING, b"identity")
WRITTEN_BY_SDK = FRAMING | {b"accept", ACCEPT_ENCODING, b"authorization", b"content-type", b"user-agent"}
NAMED_BY_SDK = {b"openai-organization": "OpenAI-Organization", b"openai-project": "OpenAI-Project"}
"""The same in the SDK's spelling, so that the client's take the place of those from the environment."""
SDK_PREFIX = b"x-stainless-"
"""Headers that OpenAI's SDK writes, and litellm's own client for Anthropic."""
BETA = b"anthropic-beta"
"""Anthropic's header for features in beta; source: docs.anthropic.com, "Beta headers"."""
ANTHROPIC_VERSION = b"2023-06-01"
"""For clients of other dialects; those of this one send their own."""
SUBSCRIPTION = "sk-ant-oat"
"""Begins a token of a subscription, which is no API key."""
MAX_CACHED_ROUTES = 256
"""Configured routes whose header lines are cached; a client can only choose among them."""


def outgoing(route: Route, caller: Caller) -> list[tuple[bytes, bytes]]:
    """Return the header lines that go upstream: the client's in order, then the configured ones that replace some."""
    if route.provider == "anthropic":
        return _for_anthropic(route, caller)
    replaced, configured = _configured(tuple(route.headers), route.api_key)
    lines = [*(line for line in caller.headers if line[0] not in replaced), *configured]
    if route.api_key is None:
        _add_bearer(lines)
    return lines


def carried(route: Route, caller: Caller) -> list[tuple[bytes, bytes]]:
    """Return the header lines of a request that is carried untouched: its caller says which codings it reads."""
    lines = outgoing(route, caller)
    if any(name == ACCEPT_ENCODING for name, _ in caller.headers):
        lines.remove(_PLAIN)
    return lines


def _add_bearer(lines: list[tuple[bytes, bytes]]) -> None:
    """Add the key of an SDK of Anthropic's as OpenAI's header; vLLM and OpenAI read no other one."""
    key = b""
    for name, value in lines:
        if name == b"authorization":
            return
        if name == b"x-api-key":
            key = value
    if key:
        lines.append((b"authorization", b"Bearer " + key))


def _for_anthropic(route: Route, caller: Caller) -> list[tuple[bytes, bytes]]:
    """Return the same lines with the key and the version as Anthropic's API wants them.

    The caller's own key stays where it came in two cases: a token of a subscription, which Claude Code sends in
    ``Authorization``, and before a gateway, whose clients know the header that it reads.
    """
    replaced, configured = _configured(tuple(route.headers), None)
    lines = [line for line in caller.headers if line[0] not in replaced]
    key = route.api_key or caller_key(caller)
    stays = route.api_key is None and (not is_anthropic(route.base_url) or (key or "").startswith(SUBSCRIPTION))
    if key is not None and not stays:
        lines = [line for line in lines if line[0] not in KEYS]
        lines.append((b"x-api-key", key.encode()))
    if all(name != b"anthropic-version" for name, _ in (*lines, *configured)):
        lines.append((b"anthropic-version", ANTHROPIC_VERSION))
    return [*lines, *configured]


@lru_cache(maxsize=MAX_CACHED_ROUTES)
def is_anthropic(base_url: str) -> bool:
    """Tell whether a base URL is Anthropic's own; an empty one is."""
    return not base_url or urlsplit(base_url).hostname == urlsplit(ANTHROPIC_BASE).hostname


@lru_cache(maxsize=MAX_CACHED_ROUTES)
def _configured(
    headers: tuple[tuple[bytes, bytes], ...], api_key: str | None
) -> tuple[frozenset[bytes], tuple[tuple[bytes, bytes], ...]]:
    """Return the names of the client's lines that do not pass, and the lines that every request gets."""
    lines = [(name.lower(), value) for name, value in headers if name.lower() not in FRAMING]
    if api_key is not None:
        lines.append((b"authorization", b"Bearer " + api_key.encode()))
    replaced = frozenset(name for name, _ in lines)
    return replaced if api_key is None else replaced | KEYS, (*lines, _PLAIN)


def caller_key(caller: Caller) -> str | None:
    """Return the caller's key, from whichever header its SDK sends it in."""
    values = {name: value.decode("latin-1").strip() for name, value in reversed(caller.headers)}
    scheme, _, token = values.get(b"authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return values.get(b"x-api-key") or values.get(b"api-key") or values.get(b"x-goog-api-key") or None


def beta_values(route: Route, caller: Caller) -> list[str]:
    """Return the values of ``anthropic-beta``: the configured ones, else the client's.

    One header line may hold several values.
    """
    configured = [value for name, value in route.headers if name == BETA]
    lines = configured or [value for name, value in caller.headers if name == BETA]
    values = (value.strip() for line in lines for value in line.decode("latin-1").split(","))
    return [value for value in values if value]


def headers_beside_sdk(route: Route, caller: Caller) -> dict[str, str]:
    """Return the wire lane's header lines without those that the SDK beneath litellm writes, each list in one line.

    A key stays in a header that this SDK does not write, as some gateways read it there. The SDK takes an organization
    and a project from the environment, which are not those of a client's own key: ``litellm.py`` leaves out what
    is empty.
    """
    configured = {name for name, _ in route.headers}  # litellm has them already
    passed = {key: "" for name, key in NAMED_BY_SDK.items() if route.api_key is None and name not in configured}
    left_out = WRITTEN_BY_SDK | configured
    for name, value in outgoing(route, caller):
        if name not in left_out and not name.startswith(SDK_PREFIX):
            key, text = NAMED_BY_SDK.get(name) or name.decode(), value.decode("latin-1")
            passed[key] = f"{passed[key]}, {text}" if passed.get(key) else text
    return passed


def trace_context_of(caller: Caller) -> dict[str, str]:
    """Return the W3C trace context of a request as header lines, each list in one line."""
    passed: dict[str, str] = {}
    if caller.trace_id:
        for name, value in caller.headers:
            if name in TRACE_CONTEXT:
                key, text = name.decode(), value.decode("latin-1")
                passed[key] = f"{passed[key]},{text}" if key in passed else text
    return passed


def returned_headers(headers: Mapping[str, str]) -> Headers:
    """Return the headers of a provider that a client acts on, its request id under OpenAI's name as well."""
    lines = {
        name.lower(): value
        for name, value in headers.items()
        if name.lower() in RETURNED_HEADERS or name.lower().startswith(RETURNED_PREFIXES)
    }
    if "request-id" in lines:
        lines.setdefault("x-request-id", lines["request-id"])
    return tuple((name.encode(), value.encode()) for name, value in lines.items())
