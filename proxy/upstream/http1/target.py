"""Where a request goes and how it begins: a URL's origin, its request line, and the header lines as bytes.

First step of the HTTP client; pure. What follows from the URL alone is worked out once.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote, urljoin, urlsplit

from proxy.core.http_headers import CONTROLS

KEPT_TARGETS = 256
"""There is one for each base URL and endpoint in use."""
_SAFE = "/:@!$&'()*+,;=~-._%"
_LONE_PERCENT = re.compile("%(?![0-9A-Fa-f]{2})")
_PORTS = {"http": 80, "https": 443}


class Origin(NamedTuple):
    """Whom a connection leads to; only requests for the same one share it."""

    host: str
    port: int
    tls: bool


@dataclass(frozen=True, slots=True)
class Target:
    """What a method and a URL alone say of a request."""

    origin: Origin
    request_line: bytes
    host_line: bytes
    authorization: bytes = b""
    """Of the user and password in the URL."""


@lru_cache(maxsize=KEPT_TARGETS)
def target_of(method: str, url: str) -> Target:
    """Read a URL.

    :raises ValueError: it names no server that speaks HTTP
    """
    parts = urlsplit(url)
    host, plain = parts.hostname, _PORTS.get(parts.scheme)
    if not host or plain is None:
        raise ValueError(f"no URL of an HTTP server: {url!r}")
    if not host.isascii():
        host = host.encode("idna").decode()
    port = plain if parts.port is None else parts.port
    named = f"[{host}]" if ":" in host else host.rstrip(".")
    shown = named if port == plain else f"{named}:{port}"
    path = _quoted(parts.path, "") or "/"
    if "/." in path and not path.startswith("//"):
        path = urljoin("/", path)
    asked = path + (f"?{_quoted(parts.query, '?')}" if parts.query else "")
    authorization = b""
    if parts.username or parts.password:
        pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        authorization = b"Basic " + b64encode(pair.encode("latin-1"))
    return Target(
        Origin(host, port, parts.scheme == "https"),
        f"{method} {asked} HTTP/1.1\r\n".encode(),
        _unbroken(f"Host: {shown}\r\n".encode(), 1),
        authorization,
    )


def head_of(target: Target, headers: Sequence[tuple[bytes, bytes]], length: int | None) -> bytes:
    """A request's head.

    :param headers: names in lower case; values go out byte by byte
    :param length: the body's, in bytes; None for a request without one
    :raises ValueError: a line holds what would end it, or a second credential stands beside the URL's
    """
    block = _unbroken(b"\r\n".join([*map(b": ".join, headers), b""]), len(headers))
    # No line is broken, so this is the line of a header: a configured host takes the place of the URL's.
    named = block.startswith(b"host: ") or block.find(b"\r\nhost: ") >= 0
    if target.authorization:
        if any(name == b"authorization" for name, _ in headers):
            raise ValueError("the URL holds a user and a password, and the request a credential of its own")
        block += b"authorization: " + target.authorization + b"\r\n"
    framed = b"\r\n" if length is None else b"Content-Length: %d\r\n\r\n" % length
    return b"".join((target.request_line, b"" if named else target.host_line, block, framed))


def _unbroken(block: bytes, lines: int) -> bytes:
    """So many lines, whose only control characters are their ends."""
    if len(block) - len(block.translate(None, CONTROLS)) != 2 * lines:
        raise ValueError("a header line holds a control character")
    return block


def _quoted(text: str, more: str) -> str:
    """A URL's part with everything encoded that may not stand in a request line; what is encoded stays so."""
    return quote(_LONE_PERCENT.sub("%25", text), safe=_SAFE + more)
