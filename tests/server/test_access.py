"""Who reaches stored conversations, and that any authenticator can say who asks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
from starlette.requests import Request

from tidemark.core.errors import Forbidden, NotAuthenticated, ServerBusy
from tidemark.core.ports import Authenticator, Caller
from tidemark.server.access import ConversationAccess
from tidemark.server.operator import MAX_TRIES, TRIES_SECONDS, OperatorAccess, WrongTokens


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

    def check_query(self, query: bytes) -> None:
        """Its keys stand in headers only."""


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


def test_wrong_admin_tokens_are_not_looked_at_without_end() -> None:
    """Eight a second from one address, as the sign-in has it; the right one from another address goes through."""
    now = [0.0]
    operator = OperatorAccess("127.0.0.1", "the-token", wrong_tokens=WrongTokens(lambda: now[0]))
    wrong, right = request_with(authorization="Bearer guess"), request_with(authorization="Bearer the-token")
    for _ in range(MAX_TRIES):
        operator.require(right)
        with pytest.raises(NotAuthenticated):
            operator.require(wrong)
    for request in (wrong, right):  # else the answer would tell which one is right
        with pytest.raises(ServerBusy):
            operator.require(request)
    with pytest.raises(NotAuthenticated):
        operator.require(request_with())  # it tries nothing
    other = request_with(authorization="Bearer the-token")
    other.scope["client"] = ("192.0.2.1", 1)
    operator.require(other)
    now[0] = TRIES_SECONDS
    operator.require(right)


def test_nobody_behind_a_named_proxy_is_the_operator_without_a_token() -> None:
    """A proxy that adds no forwarding header looks like somebody on this machine."""
    asked = request_with(host="127.0.0.1:8787")
    OperatorAccess("127.0.0.1").require(asked)
    with pytest.raises(Forbidden):
        OperatorAccess("127.0.0.1", proxies=frozenset({"127.0.0.1"})).require(asked)
    with_token = request_with(host="127.0.0.1:8787", authorization="Bearer the-token")
    OperatorAccess("127.0.0.1", "the-token", frozenset({"127.0.0.1"})).require(with_token)


def test_what_an_authenticator_refuses_is_refused() -> None:
    """Its error reaches the client as any other of ours."""
    with pytest.raises(Forbidden, match="No such key"):
        ACCESS.caller(request_with(authorization="Bearer b"))
