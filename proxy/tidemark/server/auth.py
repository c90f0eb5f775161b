"""Identifies callers: it turns a credential into a fingerprint. The credential goes upstream and is never stored."""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterable
from dataclasses import replace
from hashlib import blake2b
from operator import itemgetter

from tidemark.core.bounded import BoundedCache
from tidemark.core.conversation.messages import framed
from tidemark.core.frozen import frozen
from tidemark.core.http_headers import USER_AGENT, program_of
from tidemark.core.ports import Caller, Headers
from tidemark.core.trace_context import NAMES as TRACE_CONTEXT
from tidemark.core.trace_context import traced_lines
from tidemark.server.credentials import identifies_caller
from tidemark.server.headers import forwarded_lines
from tidemark.server.own_tokens import OwnTokens

CONNECTION = b"connection"
PLAIN_CONNECTIONS = frozenset({b"keep-alive", b"close"})
"""Values of ``Connection`` that name no header; any other value may name one."""
COOKIE = b"cookie"
API_KEY = b"x-api-key"
"""The header of Anthropic's API for a key, which clients also send as ``Authorization: Bearer``."""
BALANCER_COOKIES = (b"AWSALB", b"ARRAffinity", b"GCLB", b"INGRESSCOOKIE", b"SERVERID", b"__cf_bm", b"_cfuvid")
"""Beginnings of names of cookies that identify servers, not users. AWS changes its own with every answer, and an SDK's
cookie jar sends it back: such a client would be another tenant in each turn."""

MAX_CACHED_CALLERS = 4096
"""Callers whose fingerprints are cached; computing one takes four times as long."""
MAX_HEADS = 256
"""Sequences of header names whose meaning is cached; clients choose them, so there must be a bound."""
MAX_HEAD_BYTES = 2048
"""The longest sequence of header names that is cached; a browser's takes some 400 bytes."""
NAME = itemgetter(0)


@frozen
class _HeadLayout:
    """What the header lines of a request are, by their names; numbers are positions among the lines."""

    forwarded: tuple[int, ...]
    credentials: tuple[int, ...]
    """Lines whose values identify the caller, without cookies."""
    connections: tuple[int, ...]
    has_cookies: bool
    has_api_key: bool
    has_trace: bool
    agent: int | None
    """Where the program names itself."""
    is_lower_case: bool
    """Whether all names are in lower case, as ASGI has them."""


class PassthroughAuth:
    """``auth.mode: passthrough``: the client's own key goes upstream, and the upstream judges it.

    It caches the fingerprints of the newest callers, each under a digest of its credentials, and the layouts of
    header lines by their names. The digest's key never leaves this object, so nobody can test a credential against the
    cache.

    :param identity_headers: names that identify callers beside those of ``credentials.py``, in lower case
    :param forward_cookies: whether a client's cookies go upstream; they identify callers either way, because an
        upstream without keys may have nothing else that separates its users
    :param own_tokens: are refused: an upstream would get them. Credentials whose fingerprint is cached have passed
    """

    def __init__(
        self,
        secret: bytes,
        *,
        identity_headers: Iterable[str] = (),
        forward_cookies: bool = False,
        own_tokens: OwnTokens | None = None,
    ) -> None:
        self._secret = secret
        self._own_tokens = own_tokens or OwnTokens()
        self._keyed = blake2b(key=os.urandom(64))
        self._fingerprints: BoundedCache[bytes, bytes] = BoundedCache(MAX_CACHED_CALLERS)
        self._configured_names = frozenset(name.encode() for name in identity_headers)
        self._layouts: BoundedCache[tuple[bytes, ...], _HeadLayout] = BoundedCache(MAX_HEADS)
        self._forward_cookies = forward_cookies

    def caller(self, headers: Iterable[tuple[bytes, bytes]]) -> Caller:
        """Return the caller of a request; all requests without a credential share one caller.

        Every credential counts (promise 8), whatever the order of the lines.

        :raises InvalidApiKey: one is a token of Tidemark's own
        """
        received = headers if isinstance(headers, list) else list(headers)
        names = tuple(map(NAME, received))
        layout = self._layouts.get(names) or self._learn(names)
        if not layout.is_lower_case:
            return self.caller([(name.lower(), value) for name, value in received])
        for place in layout.connections:
            if received[place][1].lower() not in PLAIN_CONNECTIONS:  # it names hop-by-hop headers
                return self.caller(forwarded_lines(received))
        lines = [received[place] for place in layout.forwarded]
        credentials = [received[place] for place in layout.credentials]
        if layout.has_api_key:
            credentials = list({_as_bearer(line) for line in credentials})
        if layout.has_cookies:
            credentials += _cookies(received)
        credentials.sort()
        text = framed(*[field for line in credentials for field in line])
        keyed = self._keyed.copy()
        keyed.update(text)
        digest = keyed.digest()
        fingerprint = self._fingerprints.get(digest)
        if fingerprint is None:
            self._own_tokens.refuse(value for _, value in credentials)
            fingerprint = self._fingerprint(text, digest)
        program = "" if layout.agent is None else program_of(received[layout.agent][1])
        caller = Caller(
            fingerprint, lines, "", "", (), None, program
        )  # by position: names cost more than all else here
        return within_trace(caller) if layout.has_trace else caller

    def check_query(self, query: bytes) -> None:
        self._own_tokens.refuse_in_query(query)

    def _learn(self, names: tuple[bytes, ...]) -> _HeadLayout:
        """Find out and cache what the lines with these names are."""
        passing = {name for name in names if forwarded_lines([(name, b"")])}
        forwarded = passing if self._forward_cookies else passing - {COOKIE}
        layout = _HeadLayout(
            tuple(place for place, name in enumerate(names) if name in forwarded),
            tuple(place for place, name in enumerate(names) if name in passing and self._identifies(name)),
            tuple(place for place, name in enumerate(names) if name == CONNECTION),
            COOKIE in names,
            API_KEY in names,
            not passing.isdisjoint(TRACE_CONTEXT),
            names.index(USER_AGENT) if USER_AGENT in names else None,
            all(name == name.lower() for name in names),
        )
        if sum(map(len, names)) <= MAX_HEAD_BYTES:
            self._layouts.put(names, layout)
        return layout

    def _identifies(self, name: bytes) -> bool:
        return name in self._configured_names or (name != COOKIE and identifies_caller(name.decode("latin-1")))

    def _fingerprint(self, text: bytes, digest: bytes) -> bytes:
        """Compute the fingerprint of the credentials, and cache it under their digest."""
        fingerprint = hmac.digest(self._secret, text, "sha256")
        self._fingerprints.put(digest, fingerprint)
        return fingerprint

    def __repr__(self) -> str:
        return "PassthroughAuth(secret=***)"


def within_trace(caller: Caller) -> Caller:
    """Return a caller with its trace, and without a malformed trace context."""
    trace_id, lines = traced_lines(caller.headers)
    return replace(caller, headers=lines, trace_id=trace_id)


def _as_bearer(line: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    """Return the line of a key as every dialect's clients mean it: one key is one caller, in whichever header."""
    name, value = line
    return (b"authorization", b"Bearer " + value) if name == API_KEY and value else line


def _cookies(lines: Headers) -> list[tuple[bytes, bytes]]:
    """Return each cookie as a line of its own, without those of load balancers."""
    cookies = [cookie.strip() for name, value in lines if name == COOKIE for cookie in value.split(b";")]
    return [(COOKIE, cookie) for cookie in cookies if cookie and not cookie.startswith(BALANCER_COOKIES)]
