"""Who reaches stored conversations: their own tenant, by its credential, and whoever has the admin token.

Asked by every endpoint below ``/tidemark/conversations``, and by chat requests with stored history. Unlike changes of
models, contents need the token on this machine, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from proxy.core.ports import Authenticator, Caller
from proxy.server.operator import OperatorAccess


@dataclass(frozen=True, slots=True)
class ConversationAccess:
    """The rule; it holds no state of its own."""

    auth: Authenticator
    operator: OperatorAccess

    def caller(self, request: Request) -> Caller | None:
        """Who asks; None for the operator."""
        return None if self.is_operator(request) else self.tenant(request)

    def is_operator(self, request: Request) -> bool:
        """Whether a request has the admin token."""
        return self.operator.token is not None and self.operator.grants(request)

    def tenant(self, request: Request) -> Caller:
        """Whose credential a request brings. Without one, whoever reaches the port is one tenant.

        No page in a browser may become it, which ``browsers.py`` sees to before any endpoint.
        """
        return self.auth.caller(request.headers.raw)
