"""Decides who is the operator: whoever has the admin token or, where none is configured, whoever is on this machine.

The endpoints of the operator ask it. Without a token the port must be bound to loopback, and the request must name a
loopback host. Otherwise any page in a browser on this machine could send such a request (DNS rebinding).
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.requests import Request

from proxy.core.errors import Forbidden, NotAuthenticated
from proxy.core.hosts import is_loopback

FORWARDED = frozenset({"forwarded", "via", "x-real-ip"})
"""Headers that reverse proxies add. A request through a proxy on this machine may come from anywhere."""
_REMEDY = "set TIDEMARK_ADMIN_TOKEN for the server and send it as 'Authorization: Bearer TOKEN'"


@dataclass(frozen=True, slots=True)
class OperatorAccess:
    """Recognizes the operator's requests; it has no state."""

    host: str
    """The interface that the server is bound to."""
    token: str | None = None

    def __repr__(self) -> str:
        return f"OperatorAccess({self.host})"

    def require(self, request: Request) -> None:
        """Refuse a request that is not the operator's.

        :raises NotAuthenticated: the token is missing or wrong
        :raises Forbidden: no token is configured, and the request does not come from this machine alone
        """
        if self.grants(request):
            return
        if self.token is not None:
            raise NotAuthenticated("This needs the admin token: send it as 'Authorization: Bearer TOKEN'.")
        raise Forbidden(f"Without an admin token this is allowed from this machine only; {_REMEDY}.")

    def grants(self, request: Request) -> bool:
        """Tell whether a request is the operator's."""
        if self.token is not None:
            scheme, _, token = request.headers.get("authorization", "").partition(" ")
            return scheme.lower() == "bearer" and _same(token.strip().encode("latin-1"), self.token.encode())
        peer = request.client.host if request.client else ""
        direct = not any(name in FORWARDED or name.startswith("x-forwarded-") for name in request.headers)
        return direct and is_loopback(self.host) and is_loopback(peer) and is_loopback(_hostname(request))


def _same(token: bytes, expected: bytes) -> bool:
    """Compare two tokens in a time that depends on neither, not even on their lengths."""
    return hmac.compare_digest(hashlib.sha256(token).digest(), hashlib.sha256(expected).digest())


def _hostname(request: Request) -> str:
    try:
        return urlsplit("//" + request.headers.get("host", "")).hostname or ""
    except ValueError:
        return ""
