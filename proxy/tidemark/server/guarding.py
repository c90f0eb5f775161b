"""Decides whom each route of people serves, and has the audit log name what they do.

``app/roles.py`` has the rule of each route; a route without one serves nobody. The console asks for each page, and each
route below ``/tidemark`` is wrapped. Model requests never pass here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field, replace

from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidemark.core.bounded import BoundedCache
from tidemark.core.conversation.messages import digest_of
from tidemark.core.conversation.prefix import is_id, owner_of
from tidemark.core.errors import Forbidden, NotAuthenticated, StoreError, TidemarkError
from tidemark.core.events import Audited, Listener, Role
from tidemark.core.frozen import frozen
from tidemark.core.grants import Grant
from tidemark.core.ports import Caller
from tidemark.server.access import ConversationAccess
from tidemark.server.responses import error_response

Trail = Callable[[Audited], Awaitable[object]]
"""Takes an entry of the audit log, and returns once it is stored. It raises ``StoreUnavailable`` otherwise."""
Announce = Callable[[str, str], Awaitable[None]]
"""Appends the entry of a request, with what and whose it changes; ``Announcement.make``."""
RENEWAL_SECONDS = 600.0
"""A page that stays open asks again every few seconds. So long its first reading stands for those that follow."""
MAX_RENEWALS = 4096
REFUSALS = 20
"""Refusals that a worker logs within a minute. So nobody can fill the log without a token."""
MINUTE_SECONDS = 60.0
_SUBJECT_CHARACTERS = 16
_ANNOUNCEMENT = "tidemark.announcement"


@frozen
class Visitor:
    """Whom a request comes from, and so what it may see."""

    role: Role
    actor: str = ""
    """The name of a person who has signed in by OpenID; empty for a token."""
    fingerprint: bytes = b""
    """A tenant's, as its key gives it."""
    grant: Grant | None = None
    """What a tenant's key allows; None if only its provider knows."""
    key_mark: str = field(default="", repr=False)
    """Shows later whether a tenant's key is still valid (``KeyTable.mark_of``); empty without ``auth.mode: keys``."""

    @property
    def caller(self) -> Caller | None:
        """Return whose conversations the visitor reaches; None for the operator, who reaches all.

        :raises Forbidden: it is an auditor, who reaches none
        """
        if self.role == "auditor":
            raise Forbidden("An auditor sees figures and the audit log, and no text.")
        return None if self.role == "operator" else Caller(self.fingerprint, (), grant=self.grant)

    @property
    def owner(self) -> str:
        """Return a tenant's name as an owner of conversations; empty for all others."""
        return owner_of(self.fingerprint) if self.fingerprint else ""


@frozen
class RouteRule:
    """Whom a route serves, and what the audit log says of a request."""

    roles: frozenset[Role]
    action: str = ""
    """What is done by it; empty if it shows no text and changes nothing."""
    reads: bool = False
    """Whether it only reads. A tenant's own program that reads what is its own is not logged."""
    waits: bool = True
    """Whether nothing is shown or done until the log has the entry."""
    by_handler: bool = False
    """Whether the handler makes the entry, once it knows what the request does to whom, and before that is done."""
    subject: str = "id"
    """The parameter of the path, or the field of the form, that says what it is done to."""


NOBODY = RouteRule(frozenset())


class Announcement:
    """An entry that comes before what it says. Mutable: what it says."""

    def __init__(self, fact: Audited, log: Trail, later: Listener) -> None:
        self._fact = fact
        self._log = log
        self._later = later

    async def make(self, subject: str = "", tenant: str = "") -> None:
        """Append it; what it says may be done then.

        :param subject: in place of what the request's path says
        :raises StoreUnavailable: the log did not take it
        """
        fact = self._fact
        self._fact = replace(fact, subject=subject or fact.subject, tenant=tenant or fact.tenant)
        await self._log(self._fact)

    def note_failure(self) -> None:
        """Append that it was not done."""
        self._later(replace(self._fact, action=f"{self._fact.action}.failed"))


def announce_of(request: Request) -> Announce:
    """Return what appends the entry of a request below ``/tidemark`` whose rule says ``by_handler``."""
    announcement: Announcement = request.scope[_ANNOUNCEMENT]
    return announcement.make


class RefusalLimit:
    """Bounds how many refusals a worker logs. Mutable: how many this minute had, and how many were left out.

    :param clock: seconds, of any beginning
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = 0.0
        self._count = 0
        self._omitted = 0

    def admit(self) -> str | None:
        """Return what an entry says of refusals that were left out before; None to leave out this one."""
        now = self._clock()
        if now >= self._until:
            self._until, self._count = now + MINUTE_SECONDS, 0
        if self._count >= REFUSALS:
            self._omitted += 1
            return None
        self._count += 1
        omitted, self._omitted = self._omitted, 0
        return f"{omitted} more were refused before" if omitted else ""


class RouteGuard:
    """Admits requests by the rules. Mutable: what was logged a moment ago, for pages that stay open.

    :param rules: by method and path, as ``GET /tidemark/stats``
    :param trails: take the entries; none if there is no audit log
    :param owner_of_conversation: returns whose a conversation is; empty if there is none
    :param later: takes an entry that nobody waits for
    """

    def __init__(
        self,
        rules: Mapping[str, RouteRule],
        access: ConversationAccess,
        trails: Sequence[Trail],
        owner_of_conversation: Callable[[str], Awaitable[str]],
        later: Listener,
    ) -> None:
        self._rules = rules
        self._access = access
        self._trails = trails
        self._owner_of_conversation = owner_of_conversation
        self._later = later
        self._renewals: BoundedCache[tuple[Visitor, str, str, str], float] = BoundedCache(MAX_RENEWALS)
        self._refusals = RefusalLimit()

    def rule(self, method: str, path: str) -> RouteRule:
        """Return the rule of a route; one that nobody passes if there is none."""
        return self._rules.get(f"{'GET' if method == 'HEAD' else method} {path}", NOBODY)

    async def admit(
        self,
        rule: RouteRule,
        visitor: Visitor,
        request: Request,
        fields: Mapping[str, str],
        *,
        is_renewal: bool = False,
    ) -> Announcement | None:
        """Let a person through, once the audit log has what they are about to do.

        Return the entry, for a handler that makes it and for what fails; None if there is none.

        :param fields: the parameters of the path, and the fields of a form
        :param is_renewal: a page that is open already asks for what is new
        :raises Forbidden: the route does not serve the role
        :raises StoreUnavailable: the log did not take the entry, so nothing is shown and nothing is done
        """
        if visitor.role not in rule.roles:
            self.note_refusal("access.refused", visitor, request)
            raise Forbidden(f"This is not for the role {visitor.role!r}.")
        if not rule.action:
            return None
        subject = _subject(fields.get(rule.subject, ""), rule.subject)
        key = (visitor, address_of(request), rule.action, subject)
        logged_at = self._renewals.get(key)
        if rule.reads and is_renewal and logged_at is not None and time.monotonic() - logged_at < RENEWAL_SECONDS:
            return None
        fact = _fact(rule.action, visitor, request, subject)
        announcement = Announcement(fact, self.log, self._later)
        if rule.by_handler:
            return announcement
        if not rule.waits:
            self._later(fact)
            return announcement
        owner = await self._owner_of_conversation(subject) if not fact.tenant and is_id(subject) else ""
        await announcement.make(tenant=owner)
        self._renewals.put(key, time.monotonic())
        return announcement

    def note_refusal(self, action: str, visitor: Visitor, request: Request) -> None:
        """Append that somebody was refused, if not too many were."""
        omitted = self._refusals.admit()
        if omitted is not None:
            self._later(_fact(action, visitor, request, omitted or _place(request)))

    async def note_sign_in(self, visitor: Visitor, request: Request) -> None:
        """Append that somebody has signed in; later, if the store is away: a session by itself shows nothing."""
        fact = _fact("sign-in", visitor, request, "")
        try:
            await self.log(fact)
        except StoreError:
            self._later(fact)

    async def log(self, fact: Audited) -> None:
        """Append an entry.

        :raises StoreUnavailable: the log did not take it
        """
        if not self._trails:
            self._later(fact)
        await asyncio.gather(*(trail(fact) for trail in self._trails))

    # The API

    def guarded(self, routes: Sequence[BaseRoute], beginning: str) -> Sequence[BaseRoute]:
        """Return the same routes; those below a path serve only whom their rules name."""
        for route in routes:
            if isinstance(route, Route) and route.path.startswith(beginning):
                route.app = self._around(route.app, route.path)
        return routes

    def _around(self, app: ASGIApp, path: str) -> ASGIApp:
        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            request, rule = Request(scope, receive), self.rule(scope["method"], path)
            announcement: Announcement | None = None
            try:
                visitor = await self._caller(rule, request)
                is_logged = visitor.role != "tenant" or not rule.reads
                if is_logged or visitor.role not in rule.roles:
                    announcement = await self.admit(rule, visitor, request, scope["path_params"])
                    scope[_ANNOUNCEMENT] = announcement
            except TidemarkError as error:
                await error_response(error)(scope, receive, send)
                return
            statuses: list[int] = []

            async def noting(message: Message) -> None:
                if message["type"] == "http.response.start":
                    statuses.append(message["status"])
                await send(message)

            try:
                await app(scope, receive, noting)
            finally:
                if announcement is not None and (not statuses or statuses[0] >= 400):
                    announcement.note_failure()

        return guarded

    async def _caller(self, rule: RouteRule, request: Request) -> Visitor:
        """Return whose request for the API this is.

        :raises NotAuthenticated, Forbidden, ServerBusy: it is for the operator, and has no such right
        """
        access = self._access
        if access.is_operator(request):
            return Visitor("operator")
        if access.operator.is_auditor(request):
            return Visitor("auditor")
        if "tenant" in rule.roles:
            is_logged = bool(rule.action) and not rule.reads
            return Visitor("tenant", "", access.credential_caller(request).fingerprint if is_logged else b"")
        try:
            access.operator.require(request)
        except NotAuthenticated:
            if "authorization" in request.headers:
                self.note_refusal("token.refused", Visitor("tenant"), request)
            raise
        return Visitor("operator")


def _fact(action: str, visitor: Visitor, request: Request, subject: str) -> Audited:
    return Audited(action, visitor.role, visitor.actor, visitor.owner, subject, address_of(request))


def _subject(text: str, name: str) -> str:
    """Return what an entry says that something was done to; of a client's own name for it a digest."""
    if name != "id" or not text or is_id(text):
        return text
    return "name:" + digest_of(b"name", text.encode("utf-8", "replace")).hex()[:_SUBJECT_CHARACTERS]


def _place(request: Request) -> str:
    """Return the path of a request without what its sender filled in: it may be a client's own name."""
    path = request.url.path
    for name, value in request.path_params.items():
        path = path.replace(str(value), f"{{{name}}}", 1) if value else path
    return path


def address_of(request: Request) -> str:
    """Return the address that a request came from; behind a reverse proxy that is the proxy's."""
    return request.client.host if request.client else ""
