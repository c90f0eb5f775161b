"""Sends requests of other dialects than chat completions, as they are or over a bridge.

``upstream.py`` calls it. The dialects of an upstream are configured, known of its provider, or learned. An
upstream at an unknown address is asked once in the dialect itself. If it has no such endpoint, Tidemark remembers that,
and the same request goes over the bridge (ADR 0018). If an upstream refuses a request without the reasoning of its
answers, or without signed calls, it gets them from then on.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus

from tidemark.core.conversation.request import Dialect
from tidemark.core.errors import DialectNotServed, InvalidRequest
from tidemark.core.lessons import Lessons
from tidemark.core.ports import Caller, Clock, Route, UpstreamReply
from tidemark.upstream.bridges.asking import ChatGoal, WriteMessage
from tidemark.upstream.bridges.bridge import BRIDGED, ChatBridge, ReadReply
from tidemark.upstream.bridges.thinking import DEMANDS, Demand, demand_of
from tidemark.upstream.chat_sending import ChatSender, find_refusal
from tidemark.upstream.providers import ANTHROPIC_BASE, OPENAI_BASE, endpoint, is_openai
from tidemark.upstream.user_turn import OPENING_BYTES
from tidemark.upstream.wire import CHAT_PATH, FIRST_ERROR, WireLane

ANTHROPIC = "anthropic"
OPENAI_DIALECTS = frozenset({"chat", "responses"})
NO_ENDPOINT = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED})
_OBJECT = re.compile(rb'model|resp_|msg_|previous_response|(?:item|conversation) with|"param": ?"', re.IGNORECASE)
"""What a 404 names that is about something in the request, and not about the endpoint."""


class SpokenDialects:
    """Knows which dialects upstreams speak. Its state is which they took and refused.

    :param clock: seconds, of any origin
    """

    def __init__(self, clock: Clock) -> None:
        self._lessons: Lessons[tuple[str, str, str]] = Lessons(clock)
        """By address, model and dialect: an address may be that of several servers."""

    def native_route(self, route: Route, dialect: str, caller: Caller) -> Route | None:
        """Return the route on which a request goes out in its own dialect; None if it needs a bridge."""
        if route.dialects and dialect not in route.dialects:
            return None
        if route.provider == ANTHROPIC:
            return _anthropic_route(route) if dialect == "messages" else None
        if route.lane != "wire":
            return None
        if not route.dialects and route.base_url == OPENAI_BASE and dialect not in OPENAI_DIALECTS:
            return None
        if route.dialects or not self._lessons.refuses(caller.fingerprint, _subject(route, dialect)):
            return route
        return None

    def may_learn(self, route: Route, status: int) -> bool:
        """Return whether an answer may say that the upstream has no such endpoint, so that its body must be read."""
        return status in NO_ENDPOINT and not route.dialects and route.provider != ANTHROPIC

    def note_taken(self, route: Route, dialect: str, caller: Caller) -> None:
        self._lessons.note_taken(caller.fingerprint, _subject(route, dialect))

    def learn(self, route: Route, dialect: str, caller: Caller, status: int, body: bytes) -> bool:
        """Remember that an upstream does not speak a dialect, and return whether the answer says so.

        A model or a response that does not exist is a 404, too; such an answer is the client's. So is every answer of
        an upstream that spoke the dialect before: a firewall refuses texts with 405.
        """
        is_page = body.lstrip().startswith(b"<")  # a web server's page, whose words mean nothing
        if status == HTTPStatus.NOT_FOUND and not is_page and _OBJECT.search(body):
            return False
        return self._lessons.note_refused(caller.fingerprint, _subject(route, dialect))


def _subject(route: Route, dialect: str) -> tuple[str, str, str]:
    return route.base_url, route.upstream_model, dialect


def _anthropic_route(route: Route) -> Route:
    """Return the route to Anthropic's own endpoints. litellm's ``api_base`` of this provider has no ``/v1``."""
    base = route.base_url or ANTHROPIC_BASE
    if not base.partition("?")[0].endswith("/v1"):
        base = endpoint(base, "/v1")
    return replace(route, lane="wire", base_url=base)


class OtherDialects:
    """Sends requests; its parts have the state.

    :param write: writes a message of any dialect in chat completions; without it there is no bridge
    :param clock: seconds, of any origin
    """

    def __init__(
        self, spoken: SpokenDialects, wire: WireLane, chat: ChatSender, write: WriteMessage | None, clock: Clock
    ) -> None:
        self._spoken = spoken
        self._wire = wire
        self._chat = chat
        self._bridge = None if write is None else ChatBridge(write)
        self._without: Lessons[tuple[str, str, Demand]] = Lessons(clock)
        """Which upstreams, by address and model, refuse answers without what they demand of them."""

    async def send(self, route: Route, body: bytes, caller: Caller, *, dialect: Dialect, stream: bool) -> UpstreamReply:
        """Send a request, and wait for status and headers.

        :raises UpstreamUnreachable, UpstreamTimedOut: there was no answer
        :raises InvalidRequest: chat completions cannot say what the request asks for
        :raises DialectNotServed: there is no bridge from this dialect
        """
        native = self._spoken.native_route(route, dialect.name, caller)
        may_be_bridged = native is not None and self._may_be_bridged(native, body, dialect)
        if native is not None and not (may_be_bridged and self._chat.templates.is_taught(route, caller)):
            reply = await self._wire.send(native, body, caller, path=dialect.path + caller.query)
            if reply.status < FIRST_ERROR:
                self._spoken.note_taken(native, dialect.name, caller)
            refusal = None
            if may_be_bridged:
                looks = dialect.opening_error if stream else None
                reply, refusal = await find_refusal(reply, looks)
            if refusal is not None and refusal.is_about_roles:  # of the summary's: the bridge can place it elsewhere
                return await self._bridged_instead(reply, route, body, caller, dialect=dialect, stream=stream)
            if not self._spoken.may_learn(native, reply.status):
                return reply
            content = refusal.data if refusal is not None else b"".join([piece async for piece in reply.body()])
            if not self._spoken.learn(native, dialect.name, caller, reply.status, content):
                return ReadReply(reply.status, reply.headers, content)
        return await self._send_bridged(route, body, caller, dialect=dialect, stream=stream)

    async def _bridged_instead(
        self, refused: UpstreamReply, route: Route, body: bytes, caller: Caller, *, dialect: Dialect, stream: bool
    ) -> UpstreamReply:
        """Send a refused request over the bridge; return its refusal if that brings no answer."""
        try:
            with suppress(InvalidRequest):
                bridged = await self._send_bridged(route, body, caller, dialect=dialect, stream=stream)
                if bridged.status < FIRST_ERROR:
                    await refused.close()
                    return bridged
                await bridged.close()
        except BaseException:  # cancelled, too: no other code has the reply
            await refused.close()
            raise
        return refused

    def _may_be_bridged(self, native: Route, body: bytes, dialect: Dialect) -> bool:
        """Return whether a native request has a summary as a system message, and could go out in chat completions."""
        is_allowed = not native.dialects or "chat" in native.dialects
        may_have_summary = dialect.name == "responses" and OPENING_BYTES in body
        return may_have_summary and is_allowed and self._bridge is not None and not is_openai(native.base_url)

    async def _send_bridged(
        self, route: Route, body: bytes, caller: Caller, *, dialect: Dialect, stream: bool
    ) -> UpstreamReply:
        if self._bridge is None or dialect.name not in BRIDGED:
            raise not_served(route, f"{dialect.path} (the format {dialect.name!r})")
        request = await dialect.parse(body, bounded=False)

        def send_chat(chat_body: bytes) -> Awaitable[UpstreamReply]:
            return self._chat.send(route, chat_body, caller, stream=stream, is_bridged=True)

        place, credential = (route.base_url, route.upstream_model), caller.fingerprint
        goal, answered_with = _goal(route), dict(caller.answered_with)
        demands = [demand for demand in DEMANDS if self._without.refuses(credential, (*place, demand))]
        reply = await self._bridge.send(request, send_chat, goal, answered_with, demands=demands)
        refusal = reply.data if isinstance(reply, ReadReply) and reply.status >= FIRST_ERROR else b""
        demand = demand_of(refusal)
        if demand is None or demand in demands:
            return reply
        reply = await self._bridge.send(request, send_chat, goal, answered_with, demands=[*demands, demand])
        if reply.status < FIRST_ERROR:  # else the refusal may have quoted what somebody wrote
            self._without.note_refused(credential, (*place, demand))
        return reply


def _goal(route: Route) -> ChatGoal:
    if not route.speaks_openai:
        return "litellm"
    return "openai" if is_openai(route.base_url) else "server"


def not_spoken(route: Route, dialect: Dialect) -> DialectNotServed:
    """Return the error of a request to which the configured dialects leave no way: bridges lead to chat only."""
    return DialectNotServed(
        f"The upstream of {route.name!r} speaks {', '.join(sorted(route.dialects))}, as model_info.dialects says, and "
        f"this is a request of {dialect.name!r}. Use another endpoint, or add chat or {dialect.name} there."
    )


def not_asked_in_chat(route: Route) -> DialectNotServed:
    """Return the error of a request that ``transport.lane`` sends through litellm, to an upstream without chat."""
    return DialectNotServed(
        f"transport.lane is litellm, which is called for chat completions, and the upstream of {route.name!r} speaks "
        f"{', '.join(sorted(route.dialects))}, as model_info.dialects says. Add chat there, or set 'lane: wire' in "
        f"this entry."
    )


def not_served(route: Route, path: str) -> DialectNotServed:
    """Return the error of a request that litellm cannot carry."""
    return DialectNotServed(
        f"The provider of {route.name!r} is reached through litellm, which does not serve {path}. Use "
        f"{CHAT_PATH}, or a model whose entry has 'lane: wire'."
    )
