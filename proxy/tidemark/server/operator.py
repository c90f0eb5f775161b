"""Decides who is the operator: whoever has the admin token or, if none is configured, whoever is on this machine.

It also knows the auditor, who has a token of its own and sees figures and the audit log. The endpoints of both ask it.
Without a token the port must be bound to loopback, and the request must name a loopback host. Otherwise any page in a
browser on this machine could send such a request (DNS rebinding).
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections import deque
from collections.abc import Callable
from dataclasses import field
from urllib.parse import urlsplit

from starlette.requests import Request

from tidemark.core.bounded import BoundedCache
from tidemark.core.errors import Forbidden, NotAuthenticated, ServerBusy
from tidemark.core.frozen import frozen
from tidemark.core.hosts import is_loopback

FORWARDED = frozenset({"forwarded", "via", "x-real-ip"})
"""Headers that reverse proxies add. A request through a proxy on this machine may come from anywhere."""
MAX_TRIES = 8
"""Wrong tokens of one address within ``TRIES_SECONDS``.
Further ones are not looked at; the sign-in of the console holds them back."""
TRIES_SECONDS = 1.0
MAX_ADDRESSES = 4096
_REMEDY = "set TIDEMARK_ADMIN_TOKEN for the server and send it as 'Authorization: Bearer TOKEN'"


class WrongTokens:
    """Counts the wrong admin tokens of the last moment, by address. Mutable: when the newest ones came.

    :param clock: returns seconds, of any beginning
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tried_at: BoundedCache[str, deque[float]] = BoundedCache(MAX_ADDRESSES)

    def are_too_many(self, address: str) -> bool:
        """Tell whether no further token of an address is looked at for now."""
        tried_at = self._tried_at.get(address)
        return tried_at is not None and len(tried_at) == MAX_TRIES and self._clock() - tried_at[0] < TRIES_SECONDS

    def note(self, address: str) -> None:
        tried_at = self._tried_at.get(address) or deque(maxlen=MAX_TRIES)
        tried_at.append(self._clock())
        self._tried_at.put(address, tried_at)


@frozen
class OperatorAccess:
    """Recognizes the operator's requests. Its only state is the wrong tokens of the last second."""

    host: str
    """The interface that the server is bound to."""
    token: str | None = None
    proxies: frozenset[str] = frozenset()
    """Addresses of reverse proxies (``server.trusted_proxies``). Who comes from one is no operator without a token."""
    auditor_token: str | None = None
    wrong_tokens: WrongTokens = field(default_factory=WrongTokens, compare=False)

    def __repr__(self) -> str:
        return f"OperatorAccess({self.host})"

    def require(self, request: Request) -> None:
        """Refuse a request that is not the operator's.

        :raises NotAuthenticated: the token is missing or wrong
        :raises Forbidden: no token is configured, and the request does not come from this machine alone
        :raises ServerBusy: wrong tokens come too fast from its address
        """
        address = request.client.host if request.client else ""
        tries_token = self.token is not None and "authorization" in request.headers
        if tries_token and self.wrong_tokens.are_too_many(address):
            raise ServerBusy("Too many wrong tokens were tried. Try again in a few seconds.", retry_after=TRIES_SECONDS)
        if self.grants(request):
            return
        if self.is_auditor(request):
            raise Forbidden("This is for the operator. An auditor sees figures and the audit log.")
        if tries_token:
            self.wrong_tokens.note(address)
        if self.token is not None:
            raise NotAuthenticated("This needs the admin token: send it as 'Authorization: Bearer TOKEN'.")
        raise Forbidden(f"Without an admin token this is allowed from this machine only; {_REMEDY}.")

    def require_reader(self, request: Request) -> None:
        """Refuse a request that is neither the operator's nor an auditor's; raises as ``require`` does."""
        if not self.is_auditor(request):
            self.require(request)

    def is_auditor(self, request: Request) -> bool:
        """Return whether a request has the auditor's token."""
        return self.auditor_token is not None and _has_token(request, self.auditor_token)

    def grants(self, request: Request) -> bool:
        """Return whether a request is the operator's."""
        if self.token is not None:
            return _has_token(request, self.token)
        peer = request.client.host if request.client else ""
        direct = not any(name in FORWARDED or name.startswith("x-forwarded-") for name in request.headers)
        direct = direct and peer not in self.proxies
        return direct and is_loopback(self.host) and is_loopback(peer) and is_loopback(_hostname(request))


def _has_token(request: Request, expected: str) -> bool:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return scheme.lower() == "bearer" and _same(token.strip().encode("latin-1"), expected.encode())


def _same(token: bytes, expected: bytes) -> bool:
    """Compare two tokens in a time that depends on neither, not even on their lengths."""
    return hmac.compare_digest(hashlib.sha256(token).digest(), hashlib.sha256(expected).digest())


def _hostname(request: Request) -> str:
    try:
        return urlsplit("//" + request.headers.get("host", "")).hostname or ""
    except ValueError:
        return ""
