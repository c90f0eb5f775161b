"""The port of authentication: it tells callers apart before anything else is done for a request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tidemark.core.ports.upstream import Caller


class Authenticator(Protocol):
    """Turns the credentials of a request into a caller.

    Every endpoint that acts for a client asks it. It does no I/O: chat requests ask it on the event loop, and each
    waits for it.
    """

    def caller(self, headers: Iterable[tuple[bytes, bytes]]) -> Caller:
        """Return the caller of a request.

        Two requests with the same credentials have the same fingerprint, in every process (promise 8).

        :param headers: the request's header lines, as they came
        :raises NotAuthenticated, Forbidden: the credentials are not accepted
        """
        ...

    def check_query(self, query: bytes) -> None:
        """Refuse a query with a credential that no upstream may get. Endpoints need not ask: the dispatcher does.

        :raises NotAuthenticated: it has one
        """
        ...
