"""Reads URLs and writes request heads: a URL's origin, its request line, and the header lines as bytes.

First step of the HTTP client; pure. What follows from the URL alone is worked out once.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

from tidemark.core.frozen import frozen
from tidemark.core.http_headers import CONTROLS

CACHED_TARGETS = 256
"""There is one for each base URL and endpoint in use."""
_SAFE = "/:@!$&'()*+,;=~-._%"
_LONE_PERCENT = re.compile("%(?![0-9A-Fa-f]{2})")
_PORTS = {"http": 80, "https": 443}


@frozen
class Origin:
    """The server that a connection leads to; only requests to the same origin share a connection."""

    host: str
    port: int
    tls: bool

    def __str__(self) -> str:
        return f"{self.host}:{self.port}" + (" by TLS" if self.tls else "")


@frozen
class Target:
    """The parts of a request that follow from its method and URL alone."""

    origin: Origin
    request_line: bytes
    host_line: bytes
    authorization: bytes = b""
    """The credential made of the URL's user and password."""


@lru_cache(maxsize=CACHED_TARGETS)
def target_of(method: str, url: str) -> Target:
    """Read a URL.

    :raises ValueError: it names no HTTP server
    """
    parts = urlsplit(url)
    host, plain = parts.hostname, _PORTS.get(parts.scheme)
    if not host or plain is None:
        raise ValueError(
            "no URL of an HTTP server"
        )  # without the URL, which may hold a credential: the message is logged
    if not host.isascii():
        host = host.encode("idna").decode()
    port = plain if parts.port is None else parts.port
    name = f"[{host}]" if ":" in host else host.rstrip(".")
    authority = name if port == plain else f"{name}:{port}"
    path_and_query = _path_and_query(parts)
    authorization = b""
    if parts.username or parts.password:
        pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        authorization = b"Basic " + b64encode(pair.encode("latin-1"))
    return Target(
        Origin(host, port, parts.scheme == "https"),
        f"{method} {path_and_query} HTTP/1.1\r\n".encode(),
        _checked(f"Host: {authority}\r\n".encode(), 1),
        authorization,
    )


def head_of(
    target: Target, headers: Sequence[tuple[bytes, bytes]], length: int | None, *, chunked: bool = False
) -> bytes:
    """Return the head of a request.

    :param headers: names in lower case; values go out byte by byte
    :param length: of the body, in bytes; None for a request without one
    :param chunked: whether a body follows in chunks, whose length nobody knows yet
    :raises ValueError: a value would end its line, or the request has a credential beside the URL's
    """
    block = _checked(b"\r\n".join([*map(b": ".join, headers), b""]), len(headers))
    # No value ends its line, so this is a header's line: a configured host takes the place of the URL's.
    has_host = block.startswith(b"host: ") or block.find(b"\r\nhost: ") >= 0
    if target.authorization:
        if any(name == b"authorization" for name, _ in headers):
            raise ValueError("the URL holds a user and a password, and the request a credential of its own")
        block += b"authorization: " + target.authorization + b"\r\n"
    if chunked:
        framing = b"Transfer-Encoding: chunked\r\n\r\n"
    else:
        framing = b"\r\n" if length is None else b"Content-Length: %d\r\n\r\n" % length
    return b"".join((target.request_line, b"" if has_host else target.host_line, block, framing))


def sendable_url(url: str) -> str:
    """Return a URL whose path and query have the bytes that a request line gets."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{_path_and_query(parts)}"


def _path_and_query(parts: SplitResult) -> str:
    """Return what the request line has; what is encoded already keeps its bytes."""
    path = _quoted(parts.path, "") or "/"
    if "/." in path and not path.startswith("//"):
        path = urljoin("/", path)
    return path + (f"?{_quoted(parts.query, '?')}" if parts.query else "")


def _checked(block: bytes, lines: int) -> bytes:
    """Return so many lines, after checking that their ends are their only control characters."""
    if len(block) - len(block.translate(None, CONTROLS)) != 2 * lines:
        raise ValueError("a header line holds a control character")
    return block


def _quoted(text: str, more: str) -> str:
    """Encode whatever may not stand in a request line; what is encoded already stays as it is."""
    return quote(_LONE_PERCENT.sub("%25", text), safe=_SAFE + more)
