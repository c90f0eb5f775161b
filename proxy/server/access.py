"""Who reaches stored conversations: their own tenant, by its credential, and whoever has the admin token.

Asked by every endpoint below ``/tidemark/conversations``, and by chat requests with stored history. Unlike changes of
models, contents need the token on this machine, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from proxy.core.errors import Forbidden
from proxy.core.ports import Caller
from proxy.server.auth import PassthroughAuth
from proxy.server.operator import OperatorAccess


@dataclass(frozen=True, slots=True)
class ConversationAccess:
    """The rule; it holds no state of its own."""

    auth: PassthroughAuth
    operator: OperatorAccess

    def caller(self, request: Request) -> Caller | None:
        """Who asks; None for the operator.

        :raises Forbidden: nobody's credential, and another machine's name
        """
        if self.operator.token is not None and self.operator.grants(request):
            return None
        return self.tenant(request)

    def tenant(self, request: Request) -> Caller:
        """Whose credential a request brings. Without one, whoever reaches the port is one tenant.

        :raises Forbidden: no page in a browser here may become it
        """
        if self.auth.anonymous(request.headers.raw) and self.operator.strays(request):
            raise Forbidden("Without a credential, stored conversations are for clients of this machine only.")
        return self.auth.caller(request.headers.raw)
