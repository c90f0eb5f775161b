"""Plugs in live events: ``/tidemark/events``, the console's stream, and the operator's webhook.

``GET /tidemark/events`` says what happens to the caller's conversations, as server-sent events. Source of the format:
WHATWG HTML, section 9.2. Each event has an ``id``, and a client that comes back sends the last one as
``Last-Event-ID``.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress

from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from tidemark.core.conversation.prefix import owner_of
from tidemark.core.errors import InvalidRequest, TidemarkError
from tidemark.core.events import Listener
from tidemark.core.frozen import frozen
from tidemark.core.ports import Caller, FlushEntry
from tidemark.delivery.consumer import RetryWaits
from tidemark.delivery.courier import Courier
from tidemark.delivery.queue import QueueBounds, RedisFlushQueue
from tidemark.delivery.recovery import Recovery
from tidemark.delivery.worker import FlushWorker
from tidemark.features.feature import Feature, VisitorOf
from tidemark.features.live_events.events import LiveEvent, LiveEventPosition, read_position
from tidemark.features.live_events.hub import Listening, LiveEventHub, PlacedEvent
from tidemark.features.live_events.publisher import LiveEventPublisher
from tidemark.features.live_events.store import RedisLiveEvents
from tidemark.server.asgi import ON_SHUTDOWN, CancelOnDisconnect, ClientGone, Response, read_body
from tidemark.server.keepalive import COMMENT, EVENT_STREAM
from tidemark.store import keys
from tidemark.worker.worker import Worker

BOUNDS = QueueBounds(entries=1000, bytes_held=8 * 2**20)
"""Batches that wait for a receiver, and as many dead letters; the oldest make way."""
TIMEOUT_SECONDS = 10.0
STORE_SECONDS = 10.0
"""The longest that one step waits for the store. No client waits for these steps."""
NAME = "events"
"""The consumer's name in logs and metrics."""
PATH = "/tidemark/events"
MAX_BODY_BYTES = 65_536
KEEPALIVE_SECONDS = 15.0
LISTEN_SECONDS = 600.0
"""The longest response. A client goes on with the next one, so that no server waits longer for it at its end."""
END_SECONDS = 1.0
"""How long the end of a stream may take to be sent."""
HEADERS = (*EVENT_STREAM, (b"x-accel-buffering", b"no"))  # nginx would collect the events otherwise
OPENING = b"retry: 2000\n\n"


class LiveEventsFeature(Feature):
    """Publishes what happens to conversations, and gives it to those who listen."""

    def __init__(self, worker: Worker) -> None:
        feed = RedisLiveEvents(worker.store.ask, worker.codec)
        self._access = worker.access
        self._hub = LiveEventHub(feed)
        self._delivery = EventDelivery(worker)
        publishers = [feed.publish, self._delivery.publish] if self._delivery.enabled else [feed.publish]
        self._publisher = LiveEventPublisher(publishers)
        worker.store.listing.followers.append(self._publisher.note_updated)

    def routes(self) -> Sequence[BaseRoute]:
        return LiveEventEndpoint(self._hub, self._access.listener).routes()

    def console_routes(self, home: str, visitor: VisitorOf) -> Sequence[BaseRoute]:
        """Return the route of the stream that the console's pages listen to."""
        return LiveEventEndpoint(self._hub, visitor, f"{home}/events").routes()

    def listeners(self) -> Sequence[Listener]:
        """Return what makes live events of events."""
        return [self._publisher]

    async def start(self) -> None:
        """Start to deliver to the webhook."""
        self._delivery.start()

    async def aclose(self) -> None:
        """Let listeners go, publish what waits, and stop delivering."""
        await self._hub.aclose()
        await self._publisher.aclose()
        await self._delivery.aclose()


class EventDelivery:
    """Queues batches of live events for the operator's webhook; one process of all that share a store delivers them.

    Batches are entries without a conversation, so the courier delivers them one after another.
    """

    def __init__(self, worker: Worker) -> None:
        section, secret = worker.settings.events, worker.settings.secrets.flush
        self._target = None if section.webhook is None or secret is None else (str(section.webhook), secret)
        self.enabled = self._target is not None
        self._emit = worker.emit
        self.store = worker.other_store(None, STORE_SECONDS)
        self._queue = RedisFlushQueue(
            self.store.ask, worker.codec, ttl_seconds=None, bounds=BOUNDS, prefix=keys.EVENT_DELIVERIES
        )
        self._worker: FlushWorker | None = None

    async def publish(self, events: Sequence[LiveEvent]) -> bool:
        """Queue a batch, and return that somebody waits for it.

        :raises StoreUnavailable: the store did not answer in time
        """
        now = time.time()
        members = [{"event": event.kind, **event.fields} for event in events]
        body = json.dumps({"type": "events", "at": round(now, 3), "events": members}).encode()
        await self._queue.add(FlushEntry(uuid.uuid4().hex, "", "", body, now))
        if self._worker is not None:
            self._worker.nudge()
        return True

    def start(self) -> None:
        if self._target is None:
            return
        from tidemark.delivery.webhook import Webhook  # noqa: PLC0415 - it imports aiohttp

        address, secret = self._target
        webhook = Webhook(
            address,
            secret.reveal().encode(),
            timeout_seconds=TIMEOUT_SECONDS,
            clock=time.time,
            name=NAME,
            event=NAME,
        )
        reader = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        courier = Courier(webhook, self._queue, reader, waits=RetryWaits(), emit=self._emit, clock=time.time)
        recovery = Recovery(self._queue, self.store, emit=self._emit, clock=time.time)
        self._worker = FlushWorker(self._queue, [courier], recovery, reader=reader, emit=self._emit)
        self._worker.start()

    async def aclose(self) -> None:
        """Stop delivering, and let another worker lead."""
        if self._worker is not None:
            await self._worker.aclose()
        await self.store.close()


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
