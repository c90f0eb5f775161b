"""Signs the operator in: sessions in a cookie, the token of every form, and answers to wrong admin tokens.

``pages.py`` asks it before every page. A session is signed and not stored, so every worker accepts it. Its key depends
on the admin token, so that a new token ends all sessions. Sources: RFC 6265bis (cookies), OWASP's notes on sessions and
on forged requests.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
from collections.abc import Callable

from starlette.requests import Request

from tidemark.core.errors import ServerBusy
from tidemark.core.frozen import frozen
from tidemark.server.operator import OperatorAccess

COOKIE = "tidemark_session"
IDLE_SECONDS = 12 * 3600
"""A session ends when no page was opened for so long."""
RENEWAL_SECONDS = 60
"""A session that was last seen longer ago gets a new cookie with the next page."""
WRONG_TOKEN_SECONDS = 1.0
"""How long the answer to a wrong token is held back."""
MAX_HELD_BACK = 8
"""Wrong tokens that are held back at once. Together with the delay it bounds how many a stranger can try."""
_ID_BYTES = 16
_TIME_BYTES = 6
_DIGEST_BYTES = 32


@frozen
class Session:
    """A visitor that may see the console."""

    id: bytes
    seen_at: int
    """Unix time of the visit that the cookie was written for, in seconds."""


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
    """

    def __init__(self, access: OperatorAccess, secret: bytes, clock: Callable[[], float]) -> None:
        self._access = access
        self._clock = clock
        self._key = hmac.digest(secret, b"console\0" + (access.token or "").encode(), "sha256")
        self._held_back = 0

    @property
    def needs_sign_in(self) -> bool:
        """Whether an admin token is configured, so that visitors have to give it."""
        return self._access.token is not None

    def is_allowed(self, request: Request) -> bool:
        """Return whether a request may see pages without a session: by its header, or from this machine."""
        return self._access.grants(request)

    def require(self, request: Request) -> None:
        """Refuse a request of somebody who may not see the console; the operator, who may, is no tenant.

        :raises NotAuthenticated: it has no session that goes on, and no admin token
        :raises Forbidden: no token is configured, and the request does not come from this machine alone
        """
        if not (self.needs_sign_in and self.of(request)):
            self._access.require(request)

    def new(self) -> Session:
        return Session(os.urandom(_ID_BYTES), int(self._clock()))

    def of(self, request: Request) -> Session | None:
        """Return the session of a request's cookie; None if it has no session, or one that has ended or is not ours."""
        try:
            packed = base64.urlsafe_b64decode(request.cookies.get(COOKIE, ""))
        except ValueError:
            return None
        signed, digest = packed[:-_DIGEST_BYTES], packed[-_DIGEST_BYTES:]
        if len(signed) != _ID_BYTES + _TIME_BYTES or not hmac.compare_digest(digest, self._digest(signed)):
            return None
        session = Session(signed[:_ID_BYTES], int.from_bytes(signed[_ID_BYTES:], "big"))
        return session if 0 <= self._clock() - session.seen_at + 1 <= IDLE_SECONDS else None

    def renewed(self, session: Session) -> Session | None:
        """Return the session as seen now; None if its cookie is new enough."""
        now = int(self._clock())
        return Session(session.id, now) if now - session.seen_at > RENEWAL_SECONDS else None

    def cookie(self, session: Session) -> str:
        signed = session.id + session.seen_at.to_bytes(_TIME_BYTES, "big")
        return base64.urlsafe_b64encode(signed + self._digest(signed)).decode()

    def form_token(self, session: Session) -> str:
        """Return the token that every form of a session sends back; no other site can know it."""
        return hmac.digest(self._key, b"form\0" + session.id, "sha256").hex()

    def is_form_token(self, session: Session, token: str) -> bool:
        """Return whether a form was made for this session."""
        return hmac.compare_digest(self.form_token(session).encode(), token.encode("utf-8", "replace"))

    async def is_admin_token(self, token: str) -> bool:
        """Return whether this is the admin token; for a wrong one, after a while.

        :raises ServerBusy: too many wrong tokens wait already
        """
        expected = hashlib.sha256((self._access.token or "").encode()).digest()
        given = hashlib.sha256(token.strip().encode("utf-8", "replace")).digest()
        if self._access.token is not None and hmac.compare_digest(given, expected):
            return True
        if self._held_back >= MAX_HELD_BACK:
            raise ServerBusy("Too many wrong tokens were tried. Try again in a few seconds.", retry_after=5)
        self._held_back += 1
        try:
            await asyncio.sleep(WRONG_TOKEN_SECONDS)
        finally:
            self._held_back -= 1
        return False

    def _digest(self, signed: bytes) -> bytes:
        return hmac.digest(self._key, b"session\0" + signed, "sha256")
