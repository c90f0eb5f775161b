"""Sends requests of other dialects than chat completions, as they are or over a bridge.

``upstream.py`` calls it. An upstream at an address that nothing is known of is asked once in the dialect itself; where
it has no such endpoint, that is remembered, and the same request goes over the bridge (ADR 0018). An upstream that
wants the reasoning of its answers back gets it, from its first refusal on.
"""

from __future__ import annotations

from tidemark.core.conversation.request import Dialect
from tidemark.core.errors import DialectNotServed
from tidemark.core.lessons import Lessons
from tidemark.core.ports import Caller, Clock, Route, UpstreamReply
from tidemark.upstream.bridges.asking import ChatGoal, WriteMessage
from tidemark.upstream.bridges.bridge import BRIDGED, ChatBridge, ReadReply
from tidemark.upstream.bridges.thinking import demands_reasoning
from tidemark.upstream.spoken import SpokenDialects
from tidemark.upstream.translate import TranslateLane
from tidemark.upstream.wire import CHAT_PATH, FIRST_ERROR, WireLane, is_openai


class OtherDialects:
    """Sends requests; its parts have the state.

    :param write: writes a message of any dialect in chat completions; without it there is no bridge
    :param clock: seconds, of any origin
    """

    def __init__(
        self, spoken: SpokenDialects, wire: WireLane, translate: TranslateLane, write: WriteMessage | None, clock: Clock
    ) -> None:
        self._spoken = spoken
        self._wire = wire
        self._translate = translate
        self._bridge = None if write is None else ChatBridge(write)
        self._without_reasoning: Lessons[tuple[str, str]] = Lessons(clock)
        """Which upstreams, by address and model, refuse answers without their reasoning."""

    async def send(self, route: Route, body: bytes, caller: Caller, *, dialect: Dialect, stream: bool) -> UpstreamReply:
        """Send a request, and wait for status and headers.

        :raises UpstreamUnreachable, UpstreamTimedOut: there was no answer
        :raises InvalidRequest: chat completions cannot say what the request asks for
        :raises DialectNotServed: there is no bridge from this dialect
        """
        native = self._spoken.native_route(route, dialect.name, caller)
        if native is not None:
            reply = await self._wire.send(native, body, caller, path=dialect.path + caller.query)
            if reply.status < FIRST_ERROR:
                self._spoken.note_taken(native, dialect.name, caller)
            if not self._spoken.may_learn(native, reply.status):
                return reply
            content = b"".join([piece async for piece in reply.body()])
            if not self._spoken.learn(native, dialect.name, caller, reply.status, content):
                return ReadReply(reply.status, reply.headers, content)
        if self._bridge is None or dialect.name not in BRIDGED:
            raise not_served(route, f"{dialect.path} (the format {dialect.name!r})")
        request = await dialect.parse(body, bounded=False)

        async def send_chat(chat_body: bytes) -> UpstreamReply:
            if route.lane == "wire":
                return await self._wire.send(route, chat_body, caller)
            return await self._translate.send(route, chat_body, caller, stream=stream)

        subject, goal, answered_with = (route.base_url, route.upstream_model), _goal(route), dict(caller.answered_with)
        is_demanded = self._without_reasoning.refuses(caller.fingerprint, subject)
        reply = await self._bridge.send(request, send_chat, goal, answered_with, with_reasoning=is_demanded)
        is_refused = isinstance(reply, ReadReply) and reply.status >= FIRST_ERROR and demands_reasoning(reply.data)
        if is_demanded or not is_refused:
            return reply
        reply = await self._bridge.send(request, send_chat, goal, answered_with, with_reasoning=True)
        if reply.status < FIRST_ERROR:  # else the refusal may have quoted what somebody wrote
            self._without_reasoning.note_refused(caller.fingerprint, subject)
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
