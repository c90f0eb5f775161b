"""Who calls: the credential becomes a fingerprint, and goes upstream; it is kept nowhere."""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterable
from hashlib import blake2b
from operator import itemgetter
from typing import NamedTuple

from proxy.core.conversation.messages import framed
from proxy.core.ports import Caller, Headers
from proxy.server.credentials import tells_callers
from proxy.server.headers import forwarded

CONNECTION = b"connection"
PLAIN_CONNECTIONS = frozenset({b"keep-alive", b"close"})
"""What ``Connection`` says of itself alone; any other value may name a header."""
COOKIE = b"cookie"
BALANCER_COOKIES = (b"AWSALB", b"ARRAffinity", b"GCLB", b"INGRESSCOOKIE", b"SERVERID", b"__cf_bm", b"_cfuvid")
"""Beginnings of the names of cookies that tell servers apart, not users. AWS changes its own with every answer, which
an SDK's cookie jar sends back: such a client would be a stranger in each turn."""

MAX_REMEMBERED = 4096
"""Callers whose fingerprints are at hand; making one anew takes four times as long."""
MAX_HEADS = 256
"""Names of a request's header lines, all together, of which it is known what they tell; clients choose them."""
MAX_HEAD_BYTES = 2048
"""Of names that are remembered together; a browser's take some 400."""
NAME = itemgetter(0)


class _Head(NamedTuple):
    """What a request's header lines are, by their names: places among them."""

    forwarded: tuple[int, ...]
    credentials: tuple[int, ...]
    """Those whose values tell callers apart, cookies aside."""
    connections: tuple[int, ...]
    has_cookies: bool
    lower_case: bool
    """Whether the names are, as ASGI has them."""


class PassthroughAuth:
    """``auth.mode: passthrough``: the client's own key goes upstream, and the upstream judges it.

    State: the fingerprints of the newest callers, each under a digest of its credentials, and what the lines of
    a head are, by the names of all of them. What that digest is keyed with is this object's alone and never
    leaves it, so nobody can try a credential against what is remembered.

    :param identity_headers: names that tell callers apart beside those of ``credentials.py``, in lower case
    :param forward_cookies: whether a client's cookies go upstream; they tell callers apart either way, since an
        upstream without keys may have nothing else to tell its users apart by
    """

    def __init__(self, secret: bytes, *, identity_headers: Iterable[str] = (), forward_cookies: bool = False) -> None:
        self._secret = secret
        self._keyed = blake2b(key=os.urandom(64))
        self._fingerprints: dict[bytes, bytes] = {}
        self._configured = frozenset(name.encode() for name in identity_headers)
        self._heads: dict[tuple[bytes, ...], _Head] = {}
        self._forward_cookies = forward_cookies

    def caller(self, headers: Iterable[tuple[bytes, bytes]]) -> Caller:
        """The caller of a request; without a credential all callers are one.

        Every credential counts (promise 8), whatever the order of the lines.
        """
        sent = headers if isinstance(headers, list) else list(headers)
        names = tuple(map(NAME, sent))
        head = self._heads.get(names) or self._learn(names)
        if not head.lower_case:
            return self.caller([(name.lower(), value) for name, value in sent])
        for place in head.connections:
            if sent[place][1].lower() not in PLAIN_CONNECTIONS:  # it names headers that are for one hop only
                return self.caller(forwarded(sent))
        lines = [sent[place] for place in head.forwarded]
        credentials = [sent[place] for place in head.credentials]
        if head.has_cookies:
            credentials += _cookies(sent)
        credentials.sort()
        text = framed(*[field for line in credentials for field in line])
        digest = self._keyed.copy()
        digest.update(text)
        known = digest.digest()
        return Caller(self._fingerprints.get(known) or self._fingerprint(text, known), lines)

    def _learn(self, names: tuple[bytes, ...]) -> _Head:
        """What the lines of these names are; remembered."""
        passing = {name for name in names if forwarded([(name, b"")])}
        going = passing if self._forward_cookies else passing - {COOKIE}
        head = _Head(
            tuple(place for place, name in enumerate(names) if name in going),
            tuple(place for place, name in enumerate(names) if name in passing and self._tells(name)),
            tuple(place for place, name in enumerate(names) if name == CONNECTION),
            COOKIE in names,
            all(name == name.lower() for name in names),
        )
        if sum(map(len, names)) <= MAX_HEAD_BYTES:
            if len(self._heads) >= MAX_HEADS:
                del self._heads[next(iter(self._heads))]
            self._heads[names] = head
        return head

    def _tells(self, name: bytes) -> bool:
        return name in self._configured or (name != COOKIE and tells_callers(name.decode("latin-1")))

    def _fingerprint(self, text: bytes, known: bytes) -> bytes:
        """Made of the credentials, and remembered by their digest; who was first goes first."""
        if len(self._fingerprints) >= MAX_REMEMBERED:
            del self._fingerprints[next(iter(self._fingerprints))]
        made = self._fingerprints[known] = hmac.digest(self._secret, text, "sha256")
        return made

    def __repr__(self) -> str:
        return "PassthroughAuth(secret=***)"


def _cookies(lines: Headers) -> list[tuple[bytes, bytes]]:
    """Each cookie as a line of its own, without those of load balancers."""
    cookies = [cookie.strip() for name, value in lines if name == COOKIE for cookie in value.split(b";")]
    return [(COOKIE, cookie) for cookie in cookies if cookie and not cookie.startswith(BALANCER_COOKIES)]
