"""Who reaches stored conversations, and that any authenticator can say who asks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
from starlette.requests import Request

from proxy.core.errors import Forbidden
from proxy.core.ports import Authenticator, Caller
from proxy.server.access import ConversationAccess
from proxy.server.operator import OperatorAccess


class VirtualKeys:
    """An authenticator that knows its callers by keys of its own."""

    def __init__(self, tenants: Mapping[bytes, bytes]) -> None:
        self._tenants = tenants

    def caller(self, headers: Iterable[tuple[bytes, bytes]]) -> Caller:
        """Return the tenant of a key, with the key of its upstream."""
        fingerprint = self._tenants.get(dict(headers).get(b"authorization", b""))
        if fingerprint is None:
            message = "No such key."
            raise Forbidden(message)
        return Caller(fingerprint, [(b"authorization", b"Bearer of-the-upstream")])


AUTH: Authenticator = VirtualKeys({b"Bearer a": b"tenant a"})
ACCESS = ConversationAccess(AUTH, OperatorAccess("127.0.0.1", "the-token"))


def request_with(**headers: str) -> Request:
    """Return a request with header lines."""
    lines = [(name.encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": "GET", "path": "/", "headers": lines, "client": ("127.0.0.1", 1)})


def test_another_authenticator_says_who_asks() -> None:
    """No endpoint knows more of it than the protocol says."""
    caller = ACCESS.caller(request_with(authorization="Bearer a"))
    assert caller == Caller(b"tenant a", [(b"authorization", b"Bearer of-the-upstream")])


def test_what_an_authenticator_refuses_is_refused() -> None:
    """Its error reaches the client as any other of ours."""
    with pytest.raises(Forbidden, match="No such key"):
        ACCESS.caller(request_with(authorization="Bearer b"))
