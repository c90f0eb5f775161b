"""Who may change what holds for all tenants: whoever has the admin token, or, where there is none, this machine.

Asked by the endpoints of the operator. Without a token the port must be bound to loopback, and the request must be
addressed to it by a name of loopback, or any page in a browser here could send one (DNS rebinding).
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.requests import Request

from proxy.core.errors import Forbidden, NotAuthenticated

FORWARDED = frozenset({"forwarded", "via", "x-real-ip"})
"""What a reverse proxy adds: a request that came through one on this machine may have begun anywhere."""
_MEND = "set TIDEMARK_ADMIN_TOKEN for the server and send it as 'Authorization: Bearer TOKEN'"


@dataclass(frozen=True, slots=True)
class OperatorAccess:
    """The rule; it holds no state."""

    host: str
    """The interface that the server is bound to."""
    token: str | None = None

    def __repr__(self) -> str:
        return f"OperatorAccess({self.host})"

    def require(self, request: Request) -> None:
        """Pass the operator.

        :raises NotAuthenticated: the token is missing or another one
        :raises Forbidden: there is no token, and the port can be reached from elsewhere
        """
        if self.grants(request):
            return
        if self.token is not None:
            raise NotAuthenticated("This needs the admin token: send it as 'Authorization: Bearer TOKEN'.")
        raise Forbidden(f"Without an admin token this is allowed from this machine only; {_MEND}.")

    def strays(self, request: Request) -> bool:
        """Whether a request came to a port of this machine alone under another machine's name, as a page's may."""
        return is_loopback(self.host) and not is_loopback(_hostname(request))

    def grants(self, request: Request) -> bool:
        """Whether a request is the operator's."""
        if self.token is not None:
            scheme, _, given = request.headers.get("authorization", "").partition(" ")
            return scheme.lower() == "bearer" and _same(given.strip().encode("latin-1"), self.token.encode())
        peer = request.client.host if request.client else ""
        direct = not any(name in FORWARDED or name.startswith("x-forwarded-") for name in request.headers)
        return direct and is_loopback(self.host) and is_loopback(peer) and is_loopback(_hostname(request))


def is_loopback(host: str) -> bool:
    """Whether a host or address is this machine's own."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _same(given: bytes, token: bytes) -> bool:
    """Compare in a time that tells nothing, not even the length."""
    return hmac.compare_digest(hashlib.sha256(given).digest(), hashlib.sha256(token).digest())


def _hostname(request: Request) -> str:
    try:
        return urlsplit("//" + request.headers.get("host", "")).hostname or ""
    except ValueError:
        return ""
