"""Browsers: which web pages may ask, and what a page that may is allowed to read.

Before every endpoint, the one place that all requests pass. A port of this machine alone is no wall against a browser
on it: any page can send it a request, and by a name of its own that leads to 127.0.0.1 (DNS rebinding) read the answer
too. So without a credential of the client's own, which no page has by itself, a request of another site's page and one
under another machine's name are refused. The Fetch standard has the headers (``Origin``, ``Sec-Fetch-Site``, CORS).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.core.errors import ForeignPage
from proxy.core.hosts import is_loopback
from proxy.core.ports import Headers
from proxy.server.asgi import Response
from proxy.server.auth import MAX_HEAD_BYTES, MAX_HEADS, NAME
from proxy.server.credentials import brings_credential

ANOTHER_SITE = frozenset({b"cross-site", b"same-site"})
"""``Sec-Fetch-Site`` of another origin's page; ``same-site`` is another port of this machine. A page cannot set it."""
METHODS = b"GET, POST, PUT, DELETE"
PREFLIGHT_SECONDS = 7200
"""How long a browser may rely on a preflight's answer; Chromium allows no more."""
MAX_HOSTS = 64
"""Values of ``Host`` that are known to be this machine's; clients choose the port in them."""
MAX_WARNINGS = 32
"""Origins that are warned of; a page can come under any number of names."""
_REPLACED = frozenset(
    {b"access-control-allow-credentials", b"access-control-allow-origin", b"access-control-expose-headers"}
)
"""An upstream's own answers to these, of which a browser would take offence beside ours."""
_SHOWN_BYTES = 100


class BrowserAccess:
    """The rule.

    State: the values of ``Host`` that were found to be this machine's, where it stands in heads, by the names of all
    their lines, and the origins that were warned of.

    :param host: the interface that the server is bound to; where others reach it, no page is refused here
    :param allowed_origins: as browsers write them
    :param warn: tells the operator of a page that was refused, since a browser does not show why
    """

    def __init__(self, host: str, allowed_origins: Iterable[str], warn: Callable[[str], None]) -> None:
        self._guarded = is_loopback(host)
        self._allowed = frozenset(origin.encode() for origin in allowed_origins)
        self._own_names = frozenset(urlsplit(origin).hostname for origin in allowed_origins)
        self._hosts: set[bytes | None] = {None}  # a browser always sends one
        self._heads: dict[tuple[bytes, ...], int] = {}
        self._warned: set[bytes] = set()
        self._warn = warn

    def is_plain(self, headers: Headers) -> bool:
        """Whether no page is behind a request, as far as it says: most have nothing to be judged."""
        names = tuple(map(NAME, headers))
        place = self._heads.get(names)
        if place is None:
            place = self._learn(names)
        return place >= 0 and (not self._guarded or headers[place][1] in self._hosts)

    async def serve(self, scope: Scope, receive: Receive, send: Send, app: ASGIApp) -> None:
        """Refuse a request, answer it where it asks what a page may do, or hand it on."""
        lines: Mapping[bytes, bytes] = dict(scope["headers"])
        origin = lines.get(b"origin")
        if origin is not None and origin.lower() in self._allowed:
            if scope["method"] == "OPTIONS" and b"access-control-request-method" in lines:
                response = Response(send)
                await response.start(204, _preflight(origin, lines))  # which has no length (RFC 9110, section 8.6)
                await response.end()
            else:
                await app(scope, receive, _shared(send, origin))
            return
        refusal = self._refusal(lines, scope["headers"]) if self._guarded else None
        if refusal is None:
            await app(scope, receive, send)
        else:
            await Response(send).error(refusal)

    def _learn(self, names: tuple[bytes, ...]) -> int:
        """Where ``Host`` stands among a head's lines; -1 where it does not, or a page may be behind the request."""
        plain = names.count(b"host") == 1 and b"origin" not in names and b"sec-fetch-site" not in names
        place = names.index(b"host") if plain else -1
        if sum(map(len, names)) <= MAX_HEAD_BYTES:
            if len(self._heads) >= MAX_HEADS:
                del self._heads[next(iter(self._heads))]
            self._heads[names] = place
        return place

    def _refusal(self, lines: Mapping[bytes, bytes], headers: Headers) -> ForeignPage | None:
        """Why a request is not served; None where it is."""
        host, origin = lines.get(b"host"), lines.get(b"origin")
        known = self._is_own(host)
        if known and origin in (None, b"http://%b" % (host or b""), b"https://%b" % (host or b"")):
            if lines.get(b"sec-fetch-site") not in ANOTHER_SITE or brings_credential(headers):
                return None
            return ForeignPage(
                "Without a credential of its own, no page of another site may ask a Tidemark of this machine. "
                "Add the page's origin to server.allowed_origins."
            )
        # A page under a foreign name can make up a credential. Tidemark serves no pages, so none can be at home there.
        if brings_credential(headers) and (known or origin is None):
            return None
        if origin is not None:
            self._tell(origin)
            return ForeignPage(
                f"Without a credential of its own, a page of {_shown(origin)} may not ask a Tidemark of this machine. "
                "Add that origin to server.allowed_origins."
            )
        return ForeignPage(
            f"Without a credential of its own, no client may call a Tidemark of this machine {_shown(host or b'')}. "
            "Call it 127.0.0.1 or localhost, or add the origin, as http://NAME, to server.allowed_origins."
        )

    def _is_own(self, host: bytes | None) -> bool:
        """Whether a request is addressed to this machine, or to a name of an allowed origin."""
        if host in self._hosts:
            return True
        try:
            name = urlsplit("//" + (host or b"").decode("latin-1")).hostname or ""
        except ValueError:
            return False
        if not (is_loopback(name) or name in self._own_names):
            return False
        if len(self._hosts) < MAX_HOSTS:
            self._hosts.add(host)
        return True

    def _tell(self, origin: bytes) -> None:
        if origin not in self._warned and len(self._warned) < MAX_WARNINGS:
            self._warned.add(origin)
            self._warn(f"a page of {_shown(origin)} was refused; add it to server.allowed_origins if it is yours")


def _preflight(origin: bytes, lines: Mapping[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    """What an allowed page may send: any header, by the methods that are served."""
    answer = [
        (b"access-control-allow-origin", origin),
        (b"access-control-allow-methods", METHODS),
        (b"access-control-max-age", b"%d" % PREFLIGHT_SECONDS),
        (b"vary", b"Origin, Access-Control-Request-Headers"),
    ]
    wanted = lines.get(b"access-control-request-headers")
    if wanted:
        answer.append((b"access-control-allow-headers", wanted))
    if b"access-control-request-private-network" in lines:
        answer.append((b"access-control-allow-private-network", b"true"))
    return answer


def _shared(send: Send, origin: bytes) -> Send:
    """Send responses that a page of this origin may read, all headers among them."""

    async def sent(message: Message) -> None:
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

    return sent


def _shown(value: bytes) -> str:
    """A header's value in a message: short, and nothing in it that cannot be seen."""
    return repr(value[:_SHOWN_BYTES].decode("latin-1"))
