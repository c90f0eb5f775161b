"""Decides why no connection to an upstream could be made: the facts, which ``errors.py`` puts into words.

The wire lane and the translate lane call it with what their HTTP client raised. Clients wrap the causes differently, so
the whole chain of an exception is looked at.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from math import inf
from typing import Literal
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from tidemark.core.bounded import BoundedCache
from tidemark.core.frozen import frozen
from tidemark.core.hosts import is_loopback
from tidemark.core.http_headers import CONTROLS
from tidemark.core.ports import Headers, shown_url

Cause = Literal[
    "refused",
    "unknown_host",
    "no_tls",
    "tls_only",
    "untrusted",
    "tls_failed",
    "control_character",
    "no_url",
    "silent",
    "closed",
    "other",
]
"""Why there is no connection. ``closed``: there was one, and it ended before the answer began."""
MAX_CACHED_URLS = 256
"""URLs that are cached with their proxy, because reading the environment takes 70 us."""
MAX_LINKS = 20
"""Exceptions of a chain that are looked at; the longest known has seven."""
HANDSHAKE_SECONDS = 2.0
AT_ONCE_SECONDS = 0.5
"""How soon a server of TLS ends a plain connection."""
ASKED_SECONDS = 600.0
"""How long the answer of a server counts."""
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST", "UNKNOWN_PROTOCOL")
"""OpenSSL's reasons if the other side answers in plain text."""
_UNKNOWN_NAMES = (socket.EAI_NONAME, socket.EAI_AGAIN, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))
_BY_PROXY = ("ClientProxyConnectionError", "ClientHttpProxyError")
"""aiohttp's classes of a proxy that is not there or refuses, by name, because few processes import aiohttp."""


@frozen
class Proxy:
    """The HTTP proxy that the environment names for a URL."""

    url: str
    variable: str
    """Names the proxy: ``HTTPS_PROXY``."""


@frozen
class ReachFailure:
    """Why an upstream could not be reached."""

    cause: Cause
    url: str
    """The base URL, without its credentials."""
    host: str = ""
    detail: str = ""
    """What the library or the kernel says of it; it holds no credential."""
    proxy: Proxy | None = None
    """The proxy that the request went through."""
    fails_at_proxy: bool = False
    """Whether the proxy itself is what fails."""


class TlsQuestions:
    """Asks servers that end a plain connection at once whether they speak TLS: each at most once in ten minutes.

    A server that dies at each request would else be asked beside each, and the client would wait for that.
    """

    def __init__(self) -> None:
        self._answers: BoundedCache[str, tuple[float, bool]] = BoundedCache(MAX_CACHED_URLS)
        """When each was asked, on the loop's clock, and whether it speaks TLS; by base URL."""

    async def failure_of(
        self, error: BaseException, base_url: str, headers: Headers, *, took_seconds: float
    ) -> ReachFailure:
        """Return why a request got no connection, as its exception and its server tell.

        :param headers: the request's, whose values may be what cannot be sent
        :param took_seconds: how long the request took; a server that worked on it understood it
        """
        failure = failure_of(error, base_url, headers)
        is_plain = failure.cause == "closed" and failure.proxy is None and base_url.startswith("http://")
        if not is_plain or took_seconds > AT_ONCE_SECONDS:
            return failure
        now = asyncio.get_running_loop().time()
        asked_at, speaks = self._answers.get(base_url) or (-inf, False)
        if now - asked_at > ASKED_SECONDS:
            speaks = await _speaks_tls(*_server_of(base_url))
            self._answers.put(base_url, (now, speaks))
        return replace(failure, cause="tls_only") if speaks else failure


def failure_of(error: BaseException, base_url: str, headers: Headers = ()) -> ReachFailure:
    """Return why a request got no connection, as its exception tells."""
    proxy = proxy_of(base_url)
    cause, detail = _cause_of(error, headers)
    names = {type(link).__name__ for link in _chain(error)}
    at_proxy = proxy is not None and (bool(names & set(_BY_PROXY)) or cause in ("silent", "closed", "other"))
    return ReachFailure(cause, shown_url(base_url), _server_of(base_url)[0], detail, proxy, at_proxy)


@lru_cache(maxsize=MAX_CACHED_URLS)
def proxy_of(url: str) -> Proxy | None:
    """Return the HTTP proxy that the environment names for a URL (``HTTPS_PROXY``, ``NO_PROXY``, ...).

    A server of this machine is asked without one, as Go's clients do: no proxy reaches it.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return None
    proxies = getproxies()
    if not proxies or not host or is_loopback(host) or proxy_bypass(host):
        return None
    scheme = next((name for name in (parts.scheme, "all") if name in proxies), None)
    return None if scheme is None else Proxy(proxies[scheme], f"{scheme.upper()}_PROXY")


def _cause_of(error: BaseException, headers: Headers) -> tuple[Cause, str]:
    """Return the cause that an exception stands for, and what it says."""
    if any(value.translate(None, CONTROLS) != value for _, value in headers):
        return "control_character", ""
    chain = list(_chain(error))
    if (handshake := _tls_cause(chain)) is not None:
        return handshake
    looked_up = next((link for link in chain if isinstance(link, socket.gaierror)), None)
    reason = next((link.strerror for link in chain if isinstance(link, OSError) and link.strerror), "")
    if looked_up is not None and looked_up.errno in _UNKNOWN_NAMES:
        cause: Cause = "unknown_host"
    elif any(_errno(link) == errno.ECONNREFUSED for link in chain):
        cause = "refused"
    elif any(isinstance(link, TimeoutError) for link in chain):
        cause = "silent"
    elif any(isinstance(link, ValueError) for link in chain):
        cause = "no_url"
    else:
        cause = "other" if reason else "closed"
    return cause, reason


def _tls_cause(chain: Sequence[BaseException]) -> tuple[Cause, str] | None:
    """Return what failed in a TLS handshake; None if that is not what failed."""
    for link in chain:
        if isinstance(link, ssl.SSLCertVerificationError) and (message := getattr(link, "verify_message", "")):
            return "untrusted", message
        if isinstance(link, ssl.SSLError) and (reason := getattr(link, "reason", "")):  # aiohttp's own class has none
            return ("no_tls", "") if reason in _NO_TLS else ("tls_failed", reason)
    return None


def _errno(link: BaseException) -> int | None:
    return link.errno if isinstance(link, OSError) else None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those behind it, with those that aiohttp keeps in attributes."""
    waiting: list[BaseException | None] = [error]
    for _ in range(MAX_LINKS):
        if not waiting:
            return
        if (link := waiting.pop(0)) is not None:
            yield link
            waiting += [getattr(link, "os_error", None), link.__cause__ or link.__context__]


def _server_of(url: str) -> tuple[str, int]:
    """Return host and port of a URL; an empty host if it is none."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "", 0
    return host, port or (443 if parts.scheme == "https" else 80)


async def _speaks_tls(host: str, port: int) -> bool:
    """Return whether a server answers a TLS handshake. Nothing is sent over it, so its certificate does not matter."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except (OSError, ValueError, RuntimeError):
        return False
    writer.transport.abort()
    return True
