"""Decides which web pages may send requests, and lets allowed pages read the answers.

Every request passes it before any endpoint. A loopback port does not keep out a browser on the same machine: any page
can send it requests, and can read the answers through a host name of its own that resolves to 127.0.0.1 (DNS
rebinding). So a request of another site's page is refused unless it has a credential that no browser adds by itself.
A request under another host name is refused in any case: its page has the same origin as the answers, so it can add any
header, and its GET has no ``Origin``. The Fetch standard defines the headers (``Origin``, ``Sec-Fetch-Site``, CORS).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidemark.core.bounded import BoundedCache
from tidemark.core.conversation.request import ErrorFormat
from tidemark.core.errors import ForeignPage
from tidemark.core.hosts import is_address, is_container_host, is_loopback
from tidemark.core.ports import Headers
from tidemark.dialects.openai_errors import OPENAI_ERRORS
from tidemark.server.asgi import Response
from tidemark.server.auth import MAX_HEAD_BYTES, MAX_HEADS, NAME
from tidemark.server.credentials import has_own_credential

ANOTHER_SITE = frozenset({b"cross-site", b"same-site"})
"""Values of ``Sec-Fetch-Site`` for pages of other origins; ``same-site`` is another port of this machine. A page cannot
set this header."""
METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE"
PREFLIGHT_SECONDS = 7200
"""How long a browser may cache a preflight's answer; Chromium allows no more."""
MAX_HOSTS = 64
"""Values of ``Host`` for this machine that are cached; clients choose the port in them."""
MAX_WARNINGS = 32
"""Origins that the log warns of; a page can have any number of host names."""
_REPLACED = frozenset(
    {b"access-control-allow-credentials", b"access-control-allow-origin", b"access-control-expose-headers"}
)
"""Headers of an upstream that a browser would reject beside ours."""
_SHOWN_BYTES = 100
"""The longest part of a header's value that a message quotes."""


class BrowserAccess:
    """Refuses requests of foreign pages, and adds CORS headers for allowed ones.

    It caches the values of ``Host`` for this machine, the position of ``Host`` among header lines by their names, and
    the origins that it has warned of.

    :param host: the interface that the server is bound to; pages are refused on loopback only
    :param allowed_origins: origins as browsers write them
    :param allowed_hosts: other names of the server, in lower case; without any, only a loopback bind looks at names
    :param entrances: paths to which another site's page may lead a browser: the provider of OpenID leads back
    :param warn: warns the operator of a refused page, because a browser does not show the reason
    """

    def __init__(
        self,
        host: str,
        allowed_origins: Iterable[str],
        allowed_hosts: Iterable[str],
        warn: Callable[[str], None],
        entrances: frozenset[str] = frozenset(),
    ) -> None:
        names = frozenset(allowed_hosts)
        self._is_loopback_only = is_loopback(host)
        self._is_named = self._is_loopback_only or bool(names)
        self._allowed_origins = frozenset(origin.encode() for origin in allowed_origins)
        self._own_names = names.union(urlsplit(origin).hostname or "" for origin in allowed_origins)
        self._hosts: set[bytes | None] = {None}  # a browser always sends the header
        self._host_positions: BoundedCache[tuple[bytes, ...], int] = BoundedCache(MAX_HEADS)
        self._warned_origins: set[bytes] = set()
        self._warn = warn
        self._entrances = entrances

    def is_plain(self, headers: Headers) -> bool:
        """Tell whether the headers show no web page behind a request; then ``serve`` is not needed."""
        names = tuple(map(NAME, headers))
        position = self._host_positions.get(names)
        if position is None:
            position = self._learn(names)
        return position >= 0 and (not self._is_named or headers[position][1] in self._hosts)

    async def serve(
        self, scope: Scope, receive: Receive, send: Send, app: ASGIApp, errors: ErrorFormat = OPENAI_ERRORS
    ) -> None:
        """Refuse a request, answer a preflight, or pass the request on to the application.

        :param errors: the error format of the request's path
        """
        lines: Mapping[bytes, bytes] = dict(scope["headers"])
        origin = lines.get(b"origin")
        if origin is not None and origin.lower() in self._allowed_origins:
            if scope["method"] == "OPTIONS" and b"access-control-request-method" in lines:
                response = Response(send)
                await response.start(204, _preflight(origin, lines))  # a 204 has no length (RFC 9110, section 8.6)
                await response.end()
            else:
                await app(scope, receive, _with_cors(send, origin))
            return
        refusal = self._refusal(lines, scope["headers"], is_led=self._is_led(scope, lines))
        if refusal is None:
            await app(scope, receive, send if origin is None else _without_cors(send))
        else:
            await Response(send, errors).send_error(refusal)

    def _learn(self, names: tuple[bytes, ...]) -> int:
        """Find and cache the position of ``Host``. It is -1 if there is none, or a web page may be the caller."""
        plain = names.count(b"host") == 1 and b"origin" not in names and b"sec-fetch-site" not in names
        position = names.index(b"host") if plain else -1
        if sum(map(len, names)) <= MAX_HEAD_BYTES:
            self._host_positions.put(names, position)
        return position

    def _is_led(self, scope: Scope, lines: Mapping[bytes, bytes]) -> bool:
        """Tell whether a person's browser is led to a path that expects it, so that the other page reads nothing."""
        is_navigation = lines.get(b"sec-fetch-mode") == b"navigate" and lines.get(b"sec-fetch-dest") == b"document"
        return scope["path"] in self._entrances and scope["method"] == "GET" and is_navigation

    def _refusal(self, lines: Mapping[bytes, bytes], headers: Headers, *, is_led: bool = False) -> ForeignPage | None:
        """Return the reason why a request is refused; None if it is served."""
        host, origin = lines.get(b"host"), lines.get(b"origin")
        if self._is_named and not self._is_own(host):
            if origin is not None:
                self._warn_once(origin)
            return ForeignPage(
                f"Tidemark is not served under the name {_shown(host or b'')}. Use 127.0.0.1 or localhost, add the "
                "name to server.allowed_hosts, or, if a page of yours has it, its origin to server.allowed_origins."
            )
        if not self._is_loopback_only:
            return None
        if origin in (None, b"http://%b" % (host or b""), b"https://%b" % (host or b"")):
            if is_led or lines.get(b"sec-fetch-site") not in ANOTHER_SITE or has_own_credential(headers):
                return None
            return ForeignPage(
                "Without a credential of its own, no page of another site may send requests to Tidemark on this "
                "machine. Add the page's origin to server.allowed_origins."
            )
        if has_own_credential(headers):
            return None
        self._warn_once(origin)
        return ForeignPage(
            f"Without a credential of its own, a page of {_shown(origin)} may not send requests to Tidemark on "
            "this machine. Add that origin to server.allowed_origins."
        )

    def _is_own(self, host: bytes | None) -> bool:
        """Tell whether ``Host`` names this machine, an allowed host or an allowed origin.

        Elsewhere than on loopback any address does, as of a health check: a page cannot lead an address elsewhere.
        """
        if host in self._hosts:
            return True
        try:
            name = urlsplit("//" + (host or b"").decode("latin-1")).hostname or ""
        except ValueError:
            return False
        is_reached_by_address = not self._is_loopback_only and is_address(name)
        if not (is_loopback(name) or is_container_host(name) or name in self._own_names or is_reached_by_address):
            return False
        if len(self._hosts) < MAX_HOSTS:
            self._hosts.add(host)
        return True

    def _warn_once(self, origin: bytes) -> None:
        """Warn the operator of a page that was refused, once for each origin."""
        if origin not in self._warned_origins and len(self._warned_origins) < MAX_WARNINGS:
            self._warned_origins.add(origin)
            self._warn(f"a page of {_shown(origin)} was refused; add it to server.allowed_origins if it is yours")


def _preflight(origin: bytes, lines: Mapping[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    """Return the headers that answer an allowed page's preflight: any header, and all methods that are served."""
    headers = [
        (b"access-control-allow-origin", origin),
        (b"access-control-allow-methods", METHODS),
        (b"access-control-max-age", b"%d" % PREFLIGHT_SECONDS),
        (b"vary", b"Origin, Access-Control-Request-Headers"),
    ]
    names = lines.get(b"access-control-request-headers")
    if names:
        headers.append((b"access-control-allow-headers", names))
    if b"access-control-request-private-network" in lines:
        headers.append((b"access-control-allow-private-network", b"true"))
    return headers


def _with_cors(send: Send, origin: bytes) -> Send:
    """Return a ``send`` whose responses a page of this origin may read, with all headers."""

    async def send_with_cors(message: Message) -> None:
        if message["type"] == "http.response.start":
            lines = [line for line in message["headers"] if line[0].lower() not in _REPLACED]
            names = b", ".join(dict.fromkeys(name for name, _ in lines))
            more = [
                (b"access-control-allow-origin", origin),
                (b"access-control-expose-headers", names),
                (b"vary", b"Origin"),
            ]
            message = {**message, "headers": [*lines, *more]}
        await send(message)

    return send_with_cors


def _without_cors(send: Send) -> Send:
    """Return a ``send`` without the upstream's own CORS headers, by which any page could read its answers."""

    async def send_without_cors(message: Message) -> None:
        if message["type"] == "http.response.start":
            lines = [line for line in message["headers"] if not line[0].lower().startswith(b"access-control-")]
            message = {**message, "headers": lines}
        await send(message)

    return send_without_cors


def _shown(value: bytes) -> str:
    """Return a header's value for a message: shortened, with invisible characters escaped."""
    return repr(value[:_SHOWN_BYTES].decode("latin-1"))
