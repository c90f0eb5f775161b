"""Plugs in live events: ``/tidemark/events``, the console's stream, and the operator's webhook."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from starlette.requests import Request
from starlette.routing import BaseRoute

from tidemark.core.events import Listener
from tidemark.features.feature import Feature
from tidemark.features.live_events.delivery import EventDelivery
from tidemark.features.live_events.endpoint import LiveEventEndpoint
from tidemark.features.live_events.hub import LiveEventHub
from tidemark.features.live_events.publisher import LiveEventPublisher
from tidemark.features.live_events.store import RedisLiveEvents
from tidemark.worker.worker import Worker


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
