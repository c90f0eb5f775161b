"""Who calls: the credential becomes a fingerprint, and goes upstream; it is kept nowhere."""

from __future__ import annotations

import hmac
from collections.abc import Iterable

from proxy.core.headers import KEYS
from proxy.core.ports import Caller, Headers
from proxy.http.headers import forwarded

CREDENTIAL_ENDS = (b"-api-key", b"-apikey", b"-auth", b"-authorization", b"-subscription-key", b"-token")
"""A header of such a name is taken for a credential of a gateway on the way (Azure API Management, Helicone, ...)."""
BALANCER_COOKIES = (b"AWSALB", b"ARRAffinity", b"GCLB", b"INGRESSCOOKIE", b"SERVERID", b"__cf_bm", b"_cfuvid")
"""Beginnings of the names of cookies that tell servers apart, not users. AWS changes its own with every answer, which
an SDK's cookie jar sends back: such a client would be a stranger in each turn."""


class PassthroughAuth:
    """``auth.mode: passthrough``: the client's own key goes upstream, and the upstream judges it."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def caller(self, headers: Iterable[tuple[bytes, bytes]]) -> Caller:
        """The caller of a request; without a credential all callers are one.

        Every credential that goes upstream counts (promise 8), whatever the order of the lines.
        """
        lines = forwarded(headers)
        fields = [_framed(field) for line in sorted(_credentials(lines)) for field in line]
        return Caller(hmac.digest(self._secret, b"".join(fields), "sha256"), lines)

    def anonymous(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Whether a request brings no credential at all."""
        return not _credentials(forwarded(headers))

    def __repr__(self) -> str:
        return "PassthroughAuth(secret=***)"


def _credentials(lines: Headers) -> list[tuple[bytes, bytes]]:
    found = []
    for name, value in lines:
        if name in KEYS or name.endswith(CREDENTIAL_ENDS):
            found.append((name, value))
        elif name == b"cookie":
            cookies = [cookie.strip() for cookie in value.split(b";")]
            found += [(name, cookie) for cookie in cookies if cookie and not cookie.startswith(BALANCER_COOKIES)]
    return found


def _framed(field: bytes) -> bytes:
    """With its length, so that no two lists of fields are confused."""
    return len(field).to_bytes(8, "little") + field
