"""Plugs in live events: ``/tidemark/events``, the console's stream, and the operator's webhook."""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Callable, Sequence

from starlette.requests import Request
from starlette.routing import BaseRoute

from tidemark.core.events import Listener
from tidemark.core.ports import FlushEntry
from tidemark.delivery.consumer import RetryWaits
from tidemark.delivery.courier import Courier
from tidemark.delivery.queue import QueueBounds, RedisFlushQueue
from tidemark.delivery.recovery import Recovery
from tidemark.delivery.worker import FlushWorker
from tidemark.features.feature import Feature
from tidemark.features.live_events.endpoint import LiveEventEndpoint
from tidemark.features.live_events.events import LiveEvent
from tidemark.features.live_events.hub import LiveEventHub
from tidemark.features.live_events.publisher import LiveEventPublisher
from tidemark.features.live_events.store import RedisLiveEvents
from tidemark.store import keys
from tidemark.worker.worker import Worker

BOUNDS = QueueBounds(entries=1000, bytes_held=8 * 2**20)
"""Batches that wait for a receiver, and as many dead letters; the oldest make way."""
TIMEOUT_SECONDS = 10.0
STORE_SECONDS = 10.0
"""The longest that one step waits for the store. No client waits for these steps."""
NAME = "events"
"""The consumer's name in logs and metrics."""


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
        return LiveEventEndpoint(self._hub, self._access.caller).routes()

    def console_routes(self, home: str, visitor: Callable[[Request], None]) -> Sequence[BaseRoute]:
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
        """Start to deliver, in the running loop."""
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
