"""Who calls: the credential becomes a fingerprint, and goes upstream; it is kept nowhere."""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterable
from hashlib import blake2b

from proxy.core.messages import framed
from proxy.core.ports import Caller, Headers
from proxy.http.credentials import tells_callers
from proxy.http.headers import forwarded

COOKIE = b"cookie"
BALANCER_COOKIES = (b"AWSALB", b"ARRAffinity", b"GCLB", b"INGRESSCOOKIE", b"SERVERID", b"__cf_bm", b"_cfuvid")
"""Beginnings of the names of cookies that tell servers apart, not users. AWS changes its own with every answer, which
an SDK's cookie jar sends back: such a client would be a stranger in each turn."""

MAX_REMEMBERED = 4096
"""Callers whose fingerprints are at hand; making one anew takes four times as long."""
MAX_NAMES = 1024
"""Names of headers of which it is known what they tell; clients choose them, so there must be a bound."""
MAX_NAME_BYTES = 64
"""Of a name that is remembered; no real one is longer."""


class PassthroughAuth:
    """``auth.mode: passthrough``: the client's own key goes upstream, and the upstream judges it.

    State: the fingerprints of the newest callers, each under a digest of its credentials, and which names of headers
    tell callers apart. What that digest is keyed with is this object's alone and never leaves it, so nobody can try a
    credential against what is remembered.

    :param identity_headers: names that tell callers apart beside those of ``credentials.py``, in lower case
    :param forward_cookies: whether a client's cookies go upstream; they tell callers apart either way, since an
        upstream without keys may have nothing else to tell its users apart by
    """

    def __init__(self, secret: bytes, *, identity_headers: Iterable[str] = (), forward_cookies: bool = False) -> None:
        self._secret = secret
        self._keyed = blake2b(key=os.urandom(64))
        self._fingerprints: dict[bytes, bytes] = {}
        self._configured = {name.encode(): True for name in identity_headers} | {COOKIE: True}
        self._telling: dict[bytes, bool] = dict(self._configured)
        self._forward_cookies = forward_cookies

    def caller(self, headers: Iterable[tuple[bytes, bytes]]) -> Caller:
        """The caller of a request; without a credential all callers are one.

        Every credential counts (promise 8), whatever the order of the lines.
        """
        lines = forwarded(headers)
        credentials, cookies = self._credentials(lines)
        if cookies and not self._forward_cookies:
            lines = [line for line in lines if line[0] != COOKIE]
        credentials.sort()
        text = framed(*[field for line in credentials for field in line])
        digest = self._keyed.copy()
        digest.update(text)
        known = digest.digest()
        return Caller(self._fingerprints.get(known) or self._fingerprint(text, known), lines)

    def _credentials(self, lines: Headers) -> tuple[list[tuple[bytes, bytes]], bool]:
        """The lines that tell callers apart, each cookie as one of its own, and whether there are cookies."""
        telling = self._telling
        credentials, has_cookies = list[tuple[bytes, bytes]](), False
        for line in lines:
            name = line[0]
            tells = telling.get(name)
            if tells or (tells is None and self._learn(name)):
                if name != COOKIE:
                    credentials.append(line)
                    continue
                has_cookies = True
                cookies = [cookie.strip() for cookie in line[1].split(b";")]
                credentials += [(name, one) for one in cookies if one and not one.startswith(BALANCER_COOKIES)]
        return credentials, has_cookies

    def _learn(self, name: bytes) -> bool:
        """Whether a header of this name tells callers apart, and remember it."""
        tells = tells_callers(name.decode("latin-1"))
        if len(name) <= MAX_NAME_BYTES:
            if len(self._telling) >= MAX_NAMES:
                self._telling = dict(self._configured)
            self._telling[name] = tells
        return tells

    def _fingerprint(self, text: bytes, known: bytes) -> bytes:
        """Made of the credentials, and remembered by their digest; who was first goes first."""
        if len(self._fingerprints) >= MAX_REMEMBERED:
            del self._fingerprints[next(iter(self._fingerprints))]
        made = self._fingerprints[known] = hmac.digest(self._secret, text, "sha256")
        return made

    def __repr__(self) -> str:
        return "PassthroughAuth(secret=***)"
