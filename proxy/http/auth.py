"""Who calls: the credential becomes a fingerprint, and goes upstream; it is kept nowhere."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

from proxy.core.ports import Caller
from proxy.http.headers import forwarded

CREDENTIAL_HEADERS = (b"authorization", b"x-api-key", b"api-key")
"""OpenAI's, Anthropic's and Azure's own."""


class PassthroughAuth:
    """``auth.mode: passthrough``: the client's own key goes upstream, and the upstream judges it."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def caller(self, headers: Iterable[tuple[bytes, bytes]]) -> Caller:
        """The caller of a request; without a credential all callers are one."""
        lines = list(headers)
        state = hmac.new(self._secret, digestmod=hashlib.sha256)
        for name, value in lines:
            if name in CREDENTIAL_HEADERS:
                state.update(len(value).to_bytes(8, "little") + value)
        return Caller(state.digest(), forwarded(lines))

    def __repr__(self) -> str:
        return "PassthroughAuth(secret=***)"
