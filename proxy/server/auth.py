"""Who calls: the credential becomes a fingerprint, and goes upstream; it is kept nowhere."""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterable
from hashlib import blake2b

from proxy.core.conversation.messages import framed
from proxy.core.http_headers import KEYS
from proxy.core.ports import Caller, Headers
from proxy.server.headers import forwarded

CREDENTIAL_ENDS = (b"-api-key", b"-apikey", b"-auth", b"-authorization", b"-subscription-key", b"-token")
"""A header of such a name is taken for a credential of a gateway on the way (Azure API Management, Helicone, ...)."""
_LAST_LETTERS = frozenset(end[-4:] for end in CREDENTIAL_ENDS)
"""Most names end in others, which is known sooner."""
BALANCER_COOKIES = (b"AWSALB", b"ARRAffinity", b"GCLB", b"INGRESSCOOKIE", b"SERVERID", b"__cf_bm", b"_cfuvid")
"""Beginnings of the names of cookies that tell servers apart, not users. AWS changes its own with every answer, which
an SDK's cookie jar sends back: such a client would be a stranger in each turn."""

MAX_REMEMBERED = 4096
"""Callers whose fingerprints are at hand; making one anew takes four times as long."""


class PassthroughAuth:
    """``auth.mode: passthrough``: the client's own key goes upstream, and the upstream judges it.

    State: the fingerprints of the newest callers, each under a digest of its credentials. What that is keyed with is
    this object's alone and never leaves it, so nobody can try a credential against what is remembered.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._keyed = blake2b(key=os.urandom(64))
        self._fingerprints: dict[bytes, bytes] = {}

    def caller(self, headers: Iterable[tuple[bytes, bytes]]) -> Caller:
        """The caller of a request; without a credential all callers are one.

        Every credential that goes upstream counts (promise 8), whatever the order of the lines.
        """
        lines = forwarded(headers)
        told = framed(*[field for line in sorted(_credentials(lines)) for field in line])
        digest = self._keyed.copy()
        digest.update(told)
        known = digest.digest()
        return Caller(self._fingerprints.get(known) or self._fingerprint(told, known), lines)

    def anonymous(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Whether a request brings no credential at all."""
        return not _credentials(forwarded(headers))

    def _fingerprint(self, told: bytes, known: bytes) -> bytes:
        """Made of what is told of the credentials, and remembered by its digest; who was first goes first."""
        if len(self._fingerprints) >= MAX_REMEMBERED:
            del self._fingerprints[next(iter(self._fingerprints))]
        made = self._fingerprints[known] = hmac.digest(self._secret, told, "sha256")
        return made

    def __repr__(self) -> str:
        return "PassthroughAuth(secret=***)"


def _credentials(lines: Headers) -> list[tuple[bytes, bytes]]:
    found = []
    for name, value in lines:
        if name in KEYS or (name[-4:] in _LAST_LETTERS and name.endswith(CREDENTIAL_ENDS)):
            found.append((name, value))
        elif name == b"cookie":
            cookies = [cookie.strip() for cookie in value.split(b";")]
            found += [(name, cookie) for cookie in cookies if cookie and not cookie.startswith(BALANCER_COOKIES)]
    return found
