"""Signs visitors in: sessions in a cookie, the token of every form, and answers to wrong tokens and keys.

``pages.py`` asks it before every page. A session is signed and not stored, so every worker accepts it. Its key depends
on the configured tokens and on OpenID, so that a new one ends all sessions. A session says who visits: an operator, an
auditor, or a tenant by the fingerprint of its key; the key itself is nowhere. Sources: RFC 6265bis (cookies), OWASP's
notes on sessions and on forged requests.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import os
from collections.abc import Callable
from typing import Protocol

from starlette.requests import Request

from tidemark.core.errors import ServerBusy
from tidemark.core.frozen import frozen
from tidemark.core.ports import Caller
from tidemark.server.guarding import Visitor
from tidemark.server.operator import OperatorAccess

COOKIE = "tidemark_session"
IDLE_SECONDS = 12 * 3600
"""A session ends when no page was opened for so long.
One of a tenant or by OpenID ends so long after its begin: a provider may have revoked the key, or the person left."""
RENEWAL_SECONDS = 60
"""A session that was last seen longer ago gets a new cookie with the next page."""
WRONG_TOKEN_SECONDS = 1.0
"""How long the answer to a wrong token is held back."""
MAX_HELD_BACK = 8
"""Wrong tokens that are held back at once. Together with the delay it bounds how many a stranger can try."""
MAX_KEY_CHARACTERS = 1000
_ID_BYTES = 16
_DIGEST_BYTES = 32


class TenantRecognition(Protocol):
    """Recognizes tenants."""

    async def visitor_by(self, key: str) -> Visitor | None:
        """Return whose key this is; None if nobody's.

        :raises StoreUnavailable: the store was asked, and did not answer
        """
        ...

    def visitor_now(self, visitor: Visitor) -> Visitor | None:
        """Return a tenant with what its key allows now; None if the key is not valid any more."""
        ...


@frozen
class Session:
    """A visitor that may see the console."""

    id: bytes
    seen_at: int
    """Unix time of the visit that the cookie was written for, in seconds."""
    begun_at: int
    visitor: Visitor

    @property
    def is_bounded(self) -> bool:
        """Whether it ends however often pages are opened."""
        return bool(self.visitor.role == "tenant" or self.visitor.actor)


def is_from_own_page(request: Request) -> bool:
    """Tell whether a page of the console sent a form, by headers that no page can change (the Fetch standard).

    Over plain HTTP a browser sends ``Origin`` only, which then has to name the host of the request.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    host = request.headers.get("host", "")
    return request.headers.get("origin") in (f"http://{host}", f"https://{host}")


class Sessions:
    """Issues and reads sessions. Its state is the number of wrong tokens whose answers wait.

    :param secret: the key of the process's HMACs, the same in all workers and replicas
    :param clock: returns the Unix time
    :param tenants: recognizes the keys of tenants; None if nobody signs in by a key
    :param binding: what else ends all sessions when it changes
    """

    def __init__(
        self,
        access: OperatorAccess,
        secret: bytes,
        clock: Callable[[], float],
        tenants: TenantRecognition | None = None,
        binding: str = "",
    ) -> None:
        self._access = access
        self.clock = clock
        parts = json.dumps([access.token, access.auditor_token, binding]).encode()
        self._key = hmac.digest(secret, b"console\0" + parts, "sha256")
        self._tenants = tenants
        self._held_back = 0

    @property
    def needs_sign_in(self) -> bool:
        """Whether an admin token is configured, so that visitors have to give it."""
        return self._access.token is not None

    def visitor(self, request: Request) -> Visitor | None:
        """Return who visits: by a session, by the header of a token, or from this machine; None for anybody else."""
        session = self.of(request) if self.needs_sign_in else None
        if session is not None:
            return session.visitor
        if self._access.grants(request):
            return Visitor("operator")
        return Visitor("auditor") if self._access.is_auditor(request) else None

    def listener(self, request: Request) -> Caller | None:
        """Return whose events a visitor may get; None for those of all, which hold no text.

        :raises NotAuthenticated: it has no session that goes on, and no token
        :raises Forbidden: no token is configured, and the request does not come from this machine alone
        """
        visitor = self.visitor(request)
        if visitor is None:
            self._access.require(request)
        return None if visitor is None or visitor.role == "auditor" else visitor.caller

    def new(self, visitor: Visitor) -> Session:
        now = int(self.clock())
        return Session(os.urandom(_ID_BYTES), now, now, visitor)

    def of(self, request: Request) -> Session | None:
        """Return the session of a request's cookie; None if it has no session, or one that has ended or is not ours."""
        signed = self.unsealed("visitor", request.cookies.get(COOKIE, ""))
        if signed is None:
            return None
        identifier, seen_at, begun_at, role, actor, fingerprint, key_mark = json.loads(signed)
        visitor = self._now(Visitor(role, actor, bytes.fromhex(fingerprint), key_mark=key_mark))
        if visitor is None:
            return None
        session, now = Session(bytes.fromhex(identifier), seen_at, begun_at, visitor), self.clock()
        if session.is_bounded and now - begun_at > IDLE_SECONDS:
            return None
        return session if 0 <= now - seen_at + 1 <= IDLE_SECONDS else None

    def _now(self, visitor: Visitor) -> Visitor | None:
        """Return a visitor as it is now; None if it would not be let in any more."""
        if visitor.role != "tenant":
            return visitor
        return None if self._tenants is None else self._tenants.visitor_now(visitor)

    def renewed(self, session: Session) -> Session | None:
        """Return the session as seen now; None if its cookie is new enough."""
        now = int(self.clock())
        if now - session.seen_at <= RENEWAL_SECONDS:
            return None
        return Session(session.id, now, session.begun_at, session.visitor)

    def cookie(self, session: Session) -> str:
        visitor = session.visitor
        values = [session.id.hex(), session.seen_at, session.begun_at, visitor.role, visitor.actor]
        return self.sealed("visitor", json.dumps([*values, visitor.fingerprint.hex(), visitor.key_mark]).encode())

    def sealed(self, purpose: str, plain: bytes) -> str:
        """Return the value of a cookie that holds this, signed for one purpose."""
        return base64.urlsafe_b64encode(plain + self.digest(purpose, plain)).decode()

    def unsealed(self, purpose: str, cookie: str) -> bytes | None:
        """Return what a cookie holds; None if it was not signed here for this purpose."""
        try:
            packed = base64.urlsafe_b64decode(cookie)
        except ValueError:
            return None
        plain, digest = packed[:-_DIGEST_BYTES], packed[-_DIGEST_BYTES:]
        return plain if hmac.compare_digest(digest, self.digest(purpose, plain)) else None

    def digest(self, purpose: str, plain: bytes) -> bytes:
        return hmac.digest(self._key, purpose.encode() + b"\0" + plain, "sha256")

    def form_token(self, session: Session) -> str:
        """Return the token that every form of a session sends back; no other site can know it."""
        return self.digest("form", session.id).hex()

    def is_form_token(self, session: Session, token: str) -> bool:
        """Return whether a form was made for this session."""
        return hmac.compare_digest(self.form_token(session).encode(), token.encode("utf-8", "replace"))

    async def visitor_by(self, token: str) -> Visitor | None:
        """Return whose token or key this is; None for a wrong one, after a while.

        :raises ServerBusy: too many wrong ones wait already
        :raises StoreUnavailable: the store was asked for a key's conversations, and did not answer
        """
        given = _hashed(token.strip())
        roles: list[Visitor] = []
        for visitor, expected in (
            (Visitor("operator"), self._access.token),
            (Visitor("auditor"), self._access.auditor_token),
        ):
            if expected is not None and hmac.compare_digest(given, _hashed(expected)):
                roles.append(visitor)
        if roles:
            return roles[0]
        if self._held_back >= MAX_HELD_BACK:
            raise ServerBusy("Too many wrong tokens were tried. Try again in a few seconds.", retry_after=5)
        self._held_back += 1
        try:
            if self._tenants is not None and _may_be_key(token.strip()):
                tenant = await self._tenants.visitor_by(token.strip())
                if tenant is not None:
                    return tenant
            await asyncio.sleep(WRONG_TOKEN_SECONDS)
        finally:
            self._held_back -= 1
        return None


def _hashed(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def _may_be_key(token: str) -> bool:
    """Return whether a text can be a key in a header."""
    return 0 < len(token) <= MAX_KEY_CHARACTERS and token.isascii() and token.isprintable() and " " not in token
