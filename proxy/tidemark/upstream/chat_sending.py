"""Sends chat requests over their lane, so that a summary reaches the model whatever its server's chat template takes.

``upstream.py`` and the bridges call it. A request that nobody changed goes out as it is: its refusals are the client's.
"""

from __future__ import annotations

from http import HTTPStatus

from tidemark.core.errors import UpstreamError
from tidemark.core.ports import Caller, Clock, Route, UpstreamReply
from tidemark.upstream.bridges.bridge import ReadReply
from tidemark.upstream.chat_templates import ChatTemplates, is_about_roles
from tidemark.upstream.translate import TranslateLane
from tidemark.upstream.user_turn import OPENING_BYTES, in_user_turn
from tidemark.upstream.wire import CHAT_PATH, FIRST_ERROR, WireLane

REFUSED = frozenset(
    {HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.INTERNAL_SERVER_ERROR}  # llama.cpp's older one
)


class ChatSender:
    """Sends requests; its parts have the state.

    :param clock: seconds, of any origin
    """

    def __init__(self, wire: WireLane, translate: TranslateLane, clock: Clock) -> None:
        self._wire = wire
        self._translate = translate
        self._templates = ChatTemplates(wire.get_json, clock)

    async def send(
        self,
        route: Route,
        body: bytes,
        caller: Caller,
        *,
        stream: bool,
        path: str = CHAT_PATH,
        is_bridged: bool = False,
    ) -> UpstreamReply:
        """Send a chat request and wait for status and headers.

        :param is_bridged: whether the client sent the request in another dialect, so that its form is Tidemark's
        :raises UpstreamUnreachable, UpstreamTimedOut: there was no answer
        """
        has_summary = OPENING_BYTES in body
        if route.lane == "translate":  # Bedrock and Gemini want a user's turn first; litellm joins system messages
            placed = in_user_turn(body, only_before_answer=True) if has_summary else None
            return await self._translate.send(route, placed or body, caller, stream=stream)
        if not has_summary and not is_bridged:
            return await self._wire.send(route, body, caller, path=path)
        if await self._templates.is_strict(route, caller, may_ask=has_summary):
            return await self._wire.send(route, in_user_turn(body) or body, caller, path=path)
        reply = await self._wire.send(route, body, caller, path=path)
        if reply.status not in REFUSED:
            return reply
        return await self._again(route, body, caller, path, reply)

    async def _again(self, route: Route, body: bytes, caller: Caller, path: str, reply: UpstreamReply) -> UpstreamReply:
        """Send a refused request with its summary in the user's turn, if the refusal may be about that."""
        content = b"".join([piece async for piece in reply.body()])
        refusal = ReadReply(reply.status, reply.headers, content)
        placed = in_user_turn(body) if is_about_roles(content) else None
        if placed is None:
            return refusal
        try:
            again = await self._wire.send(route, placed, caller, path=path)
        except UpstreamError:
            return refusal
        if again.status >= FIRST_ERROR:  # so the order of roles was not the cause
            await again.close()
            return refusal
        self._templates.note_strict(route, caller)
        return again
