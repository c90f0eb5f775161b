"""``GET /tidemark/events``: what happens to the caller's conversations, as server-sent events.

Source of the format: WHATWG HTML, section 9.2. Each event has an ``id``, and a client that comes back sends the last
one as ``Last-Event-ID``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import suppress

from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from tidemark.core.conversation.prefix import owner_of
from tidemark.core.errors import InvalidRequest, TidemarkError
from tidemark.core.frozen import frozen
from tidemark.core.ports import Caller
from tidemark.features.live_events.events import LiveEventPosition, read_position
from tidemark.features.live_events.hub import Listening, LiveEventHub, PlacedEvent
from tidemark.server.asgi import ON_SHUTDOWN, CancelOnDisconnect, ClientGone, Response, read_body
from tidemark.server.keepalive import COMMENT, EVENT_STREAM

PATH = "/tidemark/events"
MAX_BODY_BYTES = 65_536
KEEPALIVE_SECONDS = 15.0
LISTEN_SECONDS = 600.0
"""The longest response. A client goes on with the next one, so that no server waits longer for it at its end."""
END_SECONDS = 1.0
"""How long the end of a stream may take to be sent."""
HEADERS = (*EVENT_STREAM, (b"x-accel-buffering", b"no"))  # nginx would collect the events otherwise
OPENING = b"retry: 2000\n\n"


@frozen
class LiveEventEndpoint:
    """Serves the stream, as an ASGI application."""

    hub: LiveEventHub
    caller_of: Callable[[Request], Caller | None]
    """Returns whose events a request may get, None for the operator; it raises an error for anybody else."""
    path: str = PATH
    keepalive_seconds: float = KEEPALIVE_SECONDS

    def routes(self) -> list[BaseRoute]:
        return [Route(self.path, self, methods=["GET"])]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one listener until it leaves, is dropped, or has listened for long enough."""
        response = Response(send)
        try:
            await read_body(receive, scope["headers"], MAX_BODY_BYTES)
            request = Request(scope)
            caller = self.caller_of(request)
            after = _last_event(request)
            if scope["method"] == "HEAD":
                await response.send_whole(200, HEADERS, b"")
                return
            with CancelOnDisconnect(receive):
                await self._send_events(
                    scope, response, None if caller is None else owner_of(caller.fingerprint), after
                )
        except (ClientGone, OSError):
            pass
        except TidemarkError as error:
            await response.send_error(error)

    async def _send_events(
        self, scope: Scope, response: Response, owner: str | None, after: LiveEventPosition | None
    ) -> None:
        listening: Listening | None = None
        try:
            async with asyncio.timeout(LISTEN_SECONDS) as limit:

                def end() -> None:
                    with suppress(RuntimeError):  # it has ended already
                        limit.reschedule(asyncio.get_running_loop().time())

                listening = await self.hub.listen(owner, end, after)
                scope[ON_SHUTDOWN] = end
                await response.start(200, HEADERS)
                await response.send_piece(OPENING)
                while True:
                    events = await listening.next(self.keepalive_seconds)
                    await response.send_piece(_render(events) if events else COMMENT)
        except TimeoutError:
            if listening is not None and not listening.is_dropped:  # one that takes nothing does not take its end
                with suppress(TimeoutError):
                    async with asyncio.timeout(END_SECONDS):
                        await response.end()
        finally:
            if listening is not None:
                self.hub.leave(listening)


def _last_event(request: Request) -> LiveEventPosition | None:
    """Return the position that a listener goes on from.

    :raises InvalidRequest: it is no id of an event
    """
    text = request.headers.get("last-event-id", "")
    position = read_position(text) if text else None
    if text and position is None:
        raise InvalidRequest("Last-Event-ID must be the id of an event of this stream.", param="Last-Event-ID")
    return position


def _render(events: Sequence[PlacedEvent]) -> bytes:
    return "".join(map(_render_one, events)).encode()


def _render_one(placed: PlacedEvent) -> str:
    """Return an event as the stream has it. One without a place has no id, so a client keeps its older one."""
    event = f"event: {placed.event.kind}\ndata: {json.dumps(placed.event.fields)}\n\n"
    return event if placed.position is None else f"id: {placed.position}\n{event}"
