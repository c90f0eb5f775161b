"""Sends chat requests over their lane, so that a summary reaches the model whatever its server's chat template takes.

``upstream.py`` and the bridges call it. A request that nobody changed goes out as it is: its refusals are the client's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from http import HTTPStatus

from tidemark.codings.opened_reply import OpeningError, read_opening
from tidemark.core.ports import Caller, Clock, Route, UpstreamReply
from tidemark.dialects.json_steps import LARGE_BYTES
from tidemark.dialects.openings import opening_error
from tidemark.upstream.bridges.bridge import ReadReply
from tidemark.upstream.chat_templates import ChatTemplates, drops_systems, is_about_roles
from tidemark.upstream.configured_members import with_members
from tidemark.upstream.providers import is_openai
from tidemark.upstream.translate import TranslateLane
from tidemark.upstream.user_turn import OPENING_BYTES, in_user_turn
from tidemark.upstream.wire import CHAT_PATH, WireLane

REFUSED = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.NOT_FOUND,  # of mlx_lm
        HTTPStatus.UNPROCESSABLE_ENTITY,
        HTTPStatus.INTERNAL_SERVER_ERROR,  # of older llama.cpp
    }
)
"""Statuses of a chat template's refusal."""


class ChatSender:
    """Sends requests; its parts have the state.

    :param clock: seconds, of any origin
    """

    def __init__(self, wire: WireLane, translate: TranslateLane, clock: Clock) -> None:
        self._wire = wire
        self._translate = translate
        self.templates = ChatTemplates(wire.get_json, clock)

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
        if route.members is not None:
            is_large = len(body) > LARGE_BYTES
            work = (body, route.members)
            body = await asyncio.to_thread(with_members, *work) if is_large else with_members(*work)
        has_summary = OPENING_BYTES in body

        def send(form: bytes) -> Awaitable[UpstreamReply]:
            if route.lane == "wire":
                return self._wire.send(route, form, caller, path=path)
            return self._translate.send(route, form, caller, stream=stream)

        if not (has_summary or is_bridged) or is_openai(route.base_url):
            return await send(body)
        if not route.speaks_openai and not drops_systems(route):
            # Bedrock and Gemini want a user's turn first; litellm joins system messages.
            return await send(in_user_turn(body, only_before_answer=True) or body)
        is_known = self.templates.is_known(route, caller)
        if is_known or (has_summary and await self.templates.is_strict(route, caller)):
            return await send(in_user_turn(body, is_bridged=is_bridged) or body)
        looks = opening_error if stream else None
        reply, refusal = await find_refusal(await send(body), looks)
        placed = in_user_turn(body, is_bridged=is_bridged) if refusal is not None and refusal.is_about_roles else None
        if placed is None:
            return reply
        try:
            again, repeated = await find_refusal(await send(placed), looks)
        except BaseException:  # cancelled, too: no other code has the reply
            await reply.close()
            raise
        if repeated is not None and repeated.is_about_roles:  # so the summary's place was not the cause
            await again.close()
            return reply
        await reply.close()
        self.templates.note_strict(route, caller)
        return again

    def moves_summaries(self, route: Route, caller: Caller) -> bool:
        """Return whether a request that was just sent had its summary in the user's turn for its chat template.

        Whatever showed that its server wants it there is known since, at the latest.
        """
        is_tried = not is_openai(route.base_url) and (route.speaks_openai or drops_systems(route))
        return is_tried and self.templates.is_known(route, caller)


class ReadRefusal(ReadReply):
    """A refusal whose body is there."""

    @property
    def is_about_roles(self) -> bool:
        """Whether it may be about the roles of messages."""
        return is_about_roles(self.data)


async def find_refusal(reply: UpstreamReply, looks: OpeningError | None) -> tuple[UpstreamReply, ReadRefusal | None]:
    """Return a reply to go on with, and what it says if it may be a chat template's refusal.

    :param looks: reads the opening of a stream, which may say that it was refused; None for a whole reply
    """
    if reply.status in REFUSED:
        refusal = ReadRefusal(reply.status, reply.headers, b"".join([piece async for piece in reply.body()]))
        return refusal, refusal
    is_encoded = any(name == b"content-encoding" for name, _ in reply.headers)
    if looks is None or reply.status != HTTPStatus.OK or is_encoded:
        return reply, None
    opened, error = await read_opening(reply, looks)
    return opened, ReadRefusal(HTTPStatus.BAD_REQUEST, reply.headers, error) if error else None
