"""Identifies callers by keys of the application (``auth.mode: keys``): a key names a tenant and what it may do.

Nothing of the client's credentials goes upstream: configured ones alone do. Every worker has all keys in memory, which
``features/keys`` reads from the store, so no request waits for the store.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterable, Mapping
from urllib.parse import unquote_to_bytes

from tidemark.core.bounded import BoundedCache
from tidemark.core.conversation.messages import framed
from tidemark.core.errors import InvalidApiKey, KeysUnread
from tidemark.core.frozen import frozen
from tidemark.core.grants import ApplicationKey, Grant
from tidemark.core.http_headers import USER_AGENT, program_of
from tidemark.core.ports import Caller, Clock
from tidemark.core.trace_context import NAMES as TRACE_CONTEXT
from tidemark.server.auth import (
    CONNECTION,
    COOKIE,
    MAX_HEAD_BYTES,
    MAX_HEADS,
    NAME,
    PLAIN_CONNECTIONS,
    within_trace,
)
from tidemark.server.credentials import identifies_caller
from tidemark.server.headers import forwarded_lines
from tidemark.server.own_tokens import OwnTokens

PREFIX = "sk-tm-"
"""Begins every key, so that a key is recognised in a log, in a file, and in a URL."""
ID_CHARACTERS = 12
SECRET_CHARACTERS = 43
"""Letters and digits, for the 256 bits of 32 bytes."""
AUTHORIZATION = b"authorization"
KEY_HEADERS = (AUTHORIZATION, b"x-api-key", b"api-key")
"""Where clients send keys: OpenAI's and Anthropic's SDKs, and Azure's."""
ACCOUNT_HEADERS = frozenset({b"openai-organization", b"openai-project"})
"""Headers that choose who pays within a provider's account, which is the operator's."""
PLAIN_HEADERS = frozenset(
    {
        b"accept",
        b"accept-language",
        b"baggage",
        b"content-encoding",
        b"content-type",
        b"http-referer",
        b"idempotency-key",
        b"traceparent",
        b"tracestate",
        b"user-agent",
        b"x-client-request-id",
        b"x-request-id",
        b"x-title",
    }
)
PLAIN_BEGINNINGS = (b"anthropic-", b"openai-", b"x-stainless-")
"""Headers of a restricted caller that go on. In others, gateways such as Portkey's take another model."""
_MARK = PREFIX.encode()
_ID = slice(len(_MARK), len(_MARK) + ID_CHARACTERS)
_LONGEST = 256
"""Bytes of a value that are looked at; a key has 61."""
_MISSING = "You did not send an API key. Send one of Tidemark's as 'Authorization: Bearer KEY'."
_INCORRECT = "Incorrect API key. It is unknown, revoked or expired; the operator of this server gives out keys."
_IN_URL = "An API key is in the URL, where others log it. Send it as 'Authorization: Bearer KEY', and revoke this one."


@frozen
class _TableEntry:
    """What a table has of one key, ready for a request."""

    digest: bytes
    former_digest: bytes
    former_until: float
    expires: float | None
    fingerprint: bytes
    grant: Grant


class KeyTable:
    """All keys as this worker has read them last. Mutable: which these are, and when they were read.

    A key that has expired stays so, whichever way the clock of this machine jumps: its time is the later one of the
    clock and of what has passed since the keys were read.

    :param secret: the key of the hashes, the same in all workers and replicas
    :param clock: Unix time in seconds
    :param timer: seconds that never jump
    """

    def __init__(self, secret: bytes, clock: Clock, timer: Clock) -> None:
        self._secret = secret
        self._clock = clock
        self._timer = timer
        self._entries: dict[bytes, _TableEntry] = {}
        self._is_read = False
        self._offset = 0.0
        random = os.urandom(32)  # nothing has this digest
        self._nobody = _TableEntry(random, random, 0.0, None, b"", Grant("", ""))

    def use(self, keys: Iterable[ApplicationKey]) -> None:
        """Judge all following requests by these keys."""
        self._entries = {key.id.encode(): self._ready(key) for key in keys}
        self._offset = self._clock() - self._timer()
        self._is_read = True

    def digest_of(self, key: bytes) -> bytes:
        """Return the keyed hash of a key."""
        return hmac.digest(self._secret, b"tidemark key\0" + key, "sha256")

    def fingerprint_of(self, tenant: str) -> bytes:
        """Return a tenant's fingerprint.

        Those of ``passthrough`` are made of pairs of fields, so no credential gives the same one.
        """
        return hmac.digest(self._secret, framed(b"tidemark", b"tenant", tenant.encode()), "sha256")

    def judge(self, key: bytes) -> tuple[bytes, Grant]:
        """Return the fingerprint of a key's tenant and what the key allows.

        An unknown key takes as long as a wrong one, and what is compared takes the same time for all.

        :raises InvalidApiKey: the key is unknown, revoked or expired
        :raises KeysUnread: no keys could be read yet
        """
        return self._judge(key[_ID], self.digest_of(key))

    def tenants(self) -> Mapping[bytes, str]:
        """Return the tenants of all keys by their fingerprints."""
        return {entry.fingerprint: entry.grant.tenant for entry in self._entries.values()}

    def mark_of(self, key: bytes) -> str:
        """Return what a session keeps of a key, from which nobody can make it."""
        return f"{key[_ID].hex()}:{self.digest_of(key).hex()}"

    def judge_mark(self, mark: str) -> tuple[bytes, Grant]:
        """Return what ``judge`` returns for a key, by what ``mark_of`` returned for it."""
        identifier, _, digest = mark.partition(":")
        return self._judge(bytes.fromhex(identifier), bytes.fromhex(digest))

    def _judge(self, identifier: bytes, digest: bytes) -> tuple[bytes, Grant]:
        if not self._is_read:
            raise KeysUnread
        entry = self._entries.get(identifier, self._nobody)
        is_current = hmac.compare_digest(digest, entry.digest)
        is_former = hmac.compare_digest(digest, entry.former_digest)
        if not (is_current or (is_former and self.now() < entry.former_until)):
            raise InvalidApiKey(_INCORRECT)
        if entry.expires is not None and self.now() >= entry.expires:
            raise InvalidApiKey(_INCORRECT)
        return entry.fingerprint, entry.grant

    def now(self) -> float:
        """Return the time that keys expire by, in Unix seconds."""
        return max(self._clock(), self._offset + self._timer())

    def _ready(self, key: ApplicationKey) -> _TableEntry:
        former = key.former_digest or self._nobody.digest
        grant = Grant(key.id, key.tenant, key.models, key.quota)
        return _TableEntry(key.digest, former, key.former_until, key.expires, self.fingerprint_of(key.tenant), grant)

    def __repr__(self) -> str:
        return f"KeyTable({len(self._entries)} keys)"


@frozen
class _KeyedLayout:
    """What the header lines of a request are, by their names; numbers are positions among the lines."""

    forwarded: tuple[int, ...]
    plain: tuple[int, ...]
    """Those of ``forwarded`` that cannot choose a model."""
    keys: tuple[int, ...]
    connections: tuple[int, ...]
    has_trace: bool
    agent: int | None
    """Where the program names itself."""
    is_lower_case: bool


class KeyedAuth:
    """``auth.mode: keys``: the client's key is one of Tidemark's own, and goes nowhere.

    It caches what header lines are, by their names.

    :param own_tokens: are refused like unknown keys, in words of their own
    """

    def __init__(self, table: KeyTable, own_tokens: OwnTokens | None = None) -> None:
        self._table = table
        self._own_tokens = own_tokens or OwnTokens()
        self._layouts: BoundedCache[tuple[bytes, ...], _KeyedLayout] = BoundedCache(MAX_HEADS)

    def caller(self, headers: Iterable[tuple[bytes, bytes]]) -> Caller:
        """Return the caller of a request by its key; no header of its that holds a credential goes on.

        :raises InvalidApiKey: there is no key, or none that is accepted
        :raises KeysUnread: no keys could be read yet
        """
        received = headers if isinstance(headers, list) else list(headers)
        names = tuple(map(NAME, received))
        layout = self._layouts.get(names) or self._learn(names)
        if not layout.is_lower_case:
            return self.caller([(name.lower(), value) for name, value in received])
        key_lines = [received[place] for place in layout.keys]
        try:
            fingerprint, grant = self._table.judge(_key_of(key_lines))
        except InvalidApiKey:
            self._own_tokens.refuse(value for _, value in key_lines)
            raise
        lines = [received[place] for place in (layout.plain if grant.models else layout.forwarded)]
        for place in layout.connections:
            if received[place][1].lower() not in PLAIN_CONNECTIONS:  # it names hop-by-hop headers
                passing = forwarded_lines(received)
                lines = [line for line in passing if _goes_on(line[0], grant)]
                break
        program = "" if layout.agent is None else program_of(received[layout.agent][1])
        caller = Caller(fingerprint, lines, "", "", (), grant, program)  # by position, as `auth.py` does it
        return within_trace(caller) if layout.has_trace else caller

    def check_query(self, query: bytes) -> None:
        """Refuse a key in a URL, where others log it; a key in a header beside it changes nothing."""
        if _MARK in unquote_to_bytes(query):
            raise InvalidApiKey(_IN_URL)
        self._own_tokens.refuse_in_query(query)

    def _learn(self, names: tuple[bytes, ...]) -> _KeyedLayout:
        """Find out and cache what the lines with these names are."""
        passing = {name for name in names if forwarded_lines([(name, b"")]) and not _is_credential(name)}
        layout = _KeyedLayout(
            tuple(place for place, name in enumerate(names) if name in passing),
            tuple(place for place, name in enumerate(names) if name in passing and _is_plain(name)),
            tuple(place for place, name in enumerate(names) if name in KEY_HEADERS),
            tuple(place for place, name in enumerate(names) if name == CONNECTION),
            not passing.isdisjoint(TRACE_CONTEXT),
            names.index(USER_AGENT) if USER_AGENT in names else None,
            all(name == name.lower() for name in names),
        )
        if sum(map(len, names)) <= MAX_HEAD_BYTES:
            self._layouts.put(names, layout)
        return layout


def _goes_on(name: bytes, grant: Grant) -> bool:
    return not _is_credential(name) and (not grant.models or _is_plain(name))


def _is_plain(name: bytes) -> bool:
    return name in PLAIN_HEADERS or name.startswith(PLAIN_BEGINNINGS)


def _is_credential(name: bytes) -> bool:
    """Tell whether a header must not go upstream: credentials, users, cookies, and who is to pay."""
    return name == COOKIE or name in ACCOUNT_HEADERS or identifies_caller(name.decode("latin-1"))


def _key_of(lines: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the key in some header lines. Of several, the one of Tidemark's counts; some clients send two.

    :raises InvalidApiKey: there is none, or there are two of Tidemark's
    """
    values = {_value_of(line) for line in lines} - {b""}
    if not values:
        raise InvalidApiKey(_MISSING)
    own = [key for key in values if key.startswith(_MARK)] if len(values) > 1 else [*values]
    if len(own) != 1:
        raise InvalidApiKey(_INCORRECT)
    return own[0]


def _value_of(line: tuple[bytes, bytes]) -> bytes:
    name, value = line
    if name == AUTHORIZATION:
        scheme, _, value = value.partition(b" ")
        if scheme.lower() != b"bearer":
            return b""
    return value.strip()[:_LONGEST]
