"""Decides who reaches stored conversations: their own tenant by its credential, and the operator by the admin token.

Every endpoint below ``/tidemark/conversations`` asks it, and so do chat requests. Without a token no request is the
operator's here, not even one from this machine; changes of models are less strict (``operator.py``).
"""

from __future__ import annotations

import hashlib

from starlette.requests import Request

from tidemark.core.errors import Forbidden
from tidemark.core.frozen import frozen
from tidemark.core.ports import Authenticator, Caller
from tidemark.server.operator import OperatorAccess

OPERATORS = Caller(hashlib.sha256(b"tidemark operator").digest(), ())
"""Owns what the operator imports. No credential has this fingerprint, and none goes upstream."""


@frozen
class ConversationAccess:
    """Tells the operator from tenants; it has no state of its own."""

    auth: Authenticator
    operator: OperatorAccess

    def caller(self, request: Request) -> Caller | None:
        """Return the caller of a request; None for the operator.

        :raises Forbidden: it is the auditor's, whose token is no tenant's key
        """
        if self.operator.is_auditor(request):
            raise Forbidden("An auditor sees figures and the audit log, and no text.")
        return None if self.is_operator(request) else self.credential_caller(request)

    def listener(self, request: Request) -> Caller | None:
        """Return the caller whose events a request may get; None for all: they hold ids and figures, and no text."""
        return None if self.operator.is_auditor(request) else self.caller(request)

    def is_operator(self, request: Request) -> bool:
        """Tell whether a request has the admin token."""
        return self.operator.token is not None and self.operator.grants(request)

    def credential_caller(self, request: Request) -> Caller:
        """Return the caller by the credential of a request; all requests without a credential share one caller.

        ``browsers.py`` refuses web pages that would use this shared caller, before any endpoint.
        """
        return self.auth.caller(request.headers.raw)
